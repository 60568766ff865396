"""One rank of several that compute the gradients of a policy under FSDP2 with Verl's fused loss.

``python fused_head.py FOLDER RANK WORLD_SIZE`` writes FOLDER/RANK.json: for Verl's forwards as they are in a run and as
Verl has them, name of each parameter → relative error of its gradient against transformers' own logits over all ranks'
tokens in one process. Sharding and loss are Verl's; the policy is a tiny one with an untied head and a vocabulary that
the ranks do not divide.
"""

from __future__ import annotations

import copy
import json
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed
from torch.distributed.fsdp import MixedPrecisionPolicy
from transformers import Qwen3Config, Qwen3ForCausalLM
from verl.models.transformers import qwen3_5, qwen3_vl
from verl.utils.fsdp_utils import apply_fsdp2
from verl.workers.engine.fsdp.utils import create_device_mesh

LENGTH, VOCABULARY = 12, 37
MODULES = {"qwen3_5": qwen3_5, "qwen3_vl": qwen3_vl}


def policy() -> Any:
    """The decoder is Qwen3's: the forwards under test ask of it only ``model`` and ``lm_head``."""
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=8,
        tie_word_embeddings=False,
    )
    return Qwen3ForCausalLM(config)


def expected(model: Any, tokens: torch.Tensor) -> dict[str, torch.Tensor]:
    """Gradients of the mean negative log-likelihood over all rows of `tokens`, without Verl and without shards."""
    logits = model(input_ids=tokens, use_cache=False).logits
    targets = torch.roll(tokens, -1, -1)
    (-logits.log_softmax(-1).gather(-1, targets.unsqueeze(-1)).mean()).backward()
    return {name: weight.grad for name, weight in model.named_parameters()}


def errors(forward: Any) -> dict[str, float]:
    rank, size = torch.distributed.get_rank(), torch.distributed.get_world_size()
    tokens = torch.randint(VOCABULARY, (size, LENGTH), generator=torch.Generator().manual_seed(1))
    model = policy()
    right = expected(copy.deepcopy(model), tokens)
    mesh = create_device_mesh(size, -1)
    apply_fsdp2(model, {"mesh": mesh, "mp_policy": MixedPrecisionPolicy(), "reshard_after_forward": True}, {})
    type(model).forward = forward  # as Verl's monkey patch does
    log_probs = model(input_ids=tokens[rank : rank + 1], use_cache=False).log_probs
    (-log_probs.mean()).backward()  # FSDP averages over the ranks, each of which has as many tokens
    found = {name: weight.grad.full_tensor() for name, weight in model.named_parameters()}
    return {name: float((found[name] - grad).norm() / grad.norm()) for name, grad in right.items()}


def main(folder: Path, rank: int, world_size: int) -> None:
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "cpu:gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=world_size
    )
    original = Qwen3ForCausalLM.forward
    report = {}
    for name, module in MODULES.items():
        corrected = module.forward_with_torch_backend
        for key, forward in ((name, corrected), (f"{name} of Verl", corrected.__wrapped__)):
            Qwen3ForCausalLM.forward = original
            report[key] = errors(forward)
    (folder / f"{rank}.json").write_text(json.dumps(report))
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
