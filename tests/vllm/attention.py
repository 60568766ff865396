"""``python attention.py LIBRARY ISA...``: vLLM-CPU's attention through the named kernels, against torch's own.

One process per library, since two of them cannot be loaded into one. Prints a JSON object: the largest difference of
each kernel and dtype. With ``--no-permission`` the process does not ask for AMX.
"""

from __future__ import annotations

import json
import sys

import torch

from stateward.cluster.services.cpu_kernels import allow_amx

HEADS, KV_HEADS, SIZE, BLOCK = 4, 2, 64, 32
LENGTH, NEW = 70, 40  # tokens in all, and those that are asked for


def difference(isa: str, dtype: torch.dtype) -> float:
    """Largest absolute difference of the attention of random tokens whose cache is in shuffled blocks."""
    torch.manual_seed(1)
    query, key, value = (torch.randn(n, h, SIZE, dtype=dtype) for n, h in ((NEW, HEADS), *[(LENGTH, KV_HEADS)] * 2))
    blocks = -(-LENGTH // BLOCK)
    cache = torch.zeros(blocks + 1, KV_HEADS, 2 * BLOCK, SIZE, dtype=dtype)
    keys, values = cache.chunk(2, dim=2)
    table = torch.arange(blocks, 0, -1, dtype=torch.int32)[None]  # in another order than they lie
    slots = torch.tensor([int(table[0, i // BLOCK]) * BLOCK + i % BLOCK for i in range(LENGTH)])
    torch.ops._C.cpu_attn_reshape_and_cache(key, value, keys, values, slots, isa, 1.0, 1.0, "auto")
    starts, lengths = torch.tensor([0, NEW], dtype=torch.int32), torch.tensor([LENGTH], dtype=torch.int32)
    plan = torch.ops._C.get_scheduler_metadata(
        1, HEADS, KV_HEADS, SIZE, lengths, dtype, starts, True, -1, isa, True, None, "auto"
    )
    out, scale = torch.empty_like(query), SIZE**-0.5
    torch.ops._C.cpu_attention_with_kv_cache(
        *(query, keys, values, out, starts, lengths, scale, True, None, -1, table, 0.0, plan, None, None, 1.0, 1.0),
        "auto",
    )
    mask = torch.ones(NEW, LENGTH, dtype=torch.bool).tril(LENGTH - NEW)
    expected = torch.nn.functional.scaled_dot_product_attention(
        *(tensor.float().transpose(0, 1) for tensor in (query, key, value)),
        attn_mask=mask,
        scale=scale,
        enable_gqa=True,
    ).transpose(0, 1)
    return float((out.float() - expected).abs().max())


def main(library: str, *isas: str) -> None:
    if "--no-permission" not in isas:
        allow_amx()
    torch.ops.load_library(library)
    found = {}
    for isa in isas:
        if not isa.startswith("--"):
            for dtype in (torch.float32, torch.bfloat16) if isa != "amx" else (torch.bfloat16,):
                found[f"{isa} {str(dtype).removeprefix('torch.')}"] = difference(isa, dtype)
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
