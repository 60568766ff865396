"""A low-rank adapter added into the base's weights, tensor by tensor and by name: W + (alpha / r) B A.

No model is built: the base's files are copied, and the weights that the adapter belongs to are written over in the
copy. Whatever else the files hold, a vision tower or heads for multi-token prediction, stays as it is to the byte.
Formula: Hu et al. 2021, section 4.1.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stateward.errors import SystemFault, UserError
from stateward.training import tensors
from stateward.training.shards import Shards

#: Verl writes the adapter's rank and alpha beside the shards.
META = "lora_train_meta.json"
_FACTOR = re.compile(r"base_model\.model\.(.+)\.lora_([AB])\.default\.weight")


@dataclass(frozen=True, kw_only=True)
class Adapter:
    """`pairs`: name of a weight [out, in] → its factors A [r, in] and B [out, r], in fp32."""

    scale: float
    pairs: dict[str, tuple[Any, Any]]


def is_adapter(names: Iterable[str]) -> bool:
    """Whether the tensors of a checkpoint are those of an adapter and its base."""
    return any("lora_" in name for name in names)


def read_adapter(actor: Path, shards: Shards) -> Adapter:
    """The adapter in a checkpoint's ``actor`` folder.

    Raises:
        SystemFault: a part of it is missing, or is not of a plain low-rank adapter.
    """
    try:
        meta = json.loads((actor / META).read_text())
        rank, alpha = int(meta["r"]), float(meta["lora_alpha"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SystemFault("bug", f"rank and alpha of the adapter cannot be read from {actor / META}: {error}") from None
    factors: dict[str, dict[str, Any]] = {}
    for name in sorted(name for name in shards if "lora_" in name):
        found = _FACTOR.fullmatch(name)
        if not found:
            raise SystemFault("bug", f"{name} is no factor of a plain low-rank adapter, so it cannot be merged")
        factors.setdefault(f"{found[1]}.weight", {})[found[2]] = shards.whole(name).float()
    for name, pair in factors.items():
        if pair.keys() != {"A", "B"} or not pair["A"].shape[0] == pair["B"].shape[1] == rank:
            shapes = {letter: tuple(tensor.shape) for letter, tensor in pair.items()}
            raise SystemFault("bug", f"the adapter of {name} is not a pair of rank {rank}: {shapes}")
    return Adapter(scale=alpha / rank, pairs={name: (pair["A"], pair["B"]) for name, pair in factors.items()})


def add_adapter(adapter: Adapter, base: Path, target: Path) -> None:
    """Write the base's weights with the adapter in them into the folder `target`. Besides the factors, one tensor is in
    memory at a time.

    The product and the sum are computed in fp32 and rounded to the base's dtype once.

    Raises:
        UserError: the base holds no safetensors, or the adapter does not belong to it; nothing is written.
    """
    files = tensors.weight_files(base)
    headers = {path: tensors.read_header(path) for path in sorted(set(files.values()))}
    entries = {name: entry for header in headers.values() for name, entry in header.entries.items()}
    _check_targets(adapter, base, entries)
    target.mkdir(parents=True, exist_ok=True)
    for path, header in headers.items():
        copy = target / path.name
        shutil.copyfile(path, copy)
        with open(copy, "r+b") as file:
            for name in header.entries.keys() & adapter.pairs.keys():
                merged = _sum(adapter, name, path)
                if merged is not None:
                    begin, _ = header.entries[name]["data_offsets"]
                    file.seek(header.data + begin)
                    file.write(memoryview(merged))
    if (base / tensors.INDEX).is_file():
        shutil.copyfile(base / tensors.INDEX, target / tensors.INDEX)


def _sum(adapter: Adapter, name: str, path: Path) -> Any:
    """The bytes of a weight with its product added; None if the product is zero, as of a part that was never used."""
    import torch
    from safetensors import safe_open

    a, b = adapter.pairs[name]
    product = (b @ a) * adapter.scale
    if not product.any():
        return None
    with safe_open(path, framework="pt") as archive:
        weight = archive.get_tensor(name)
    merged = (weight.float() + product).to(weight.dtype)
    return merged.contiguous().view(torch.uint8).numpy()


def _check_targets(adapter: Adapter, base: Path, entries: dict[str, Any]) -> None:
    wrong = []
    for name, (a, b) in sorted(adapter.pairs.items()):
        entry, shape = entries.get(name), [b.shape[0], a.shape[1]]
        if entry is None:
            wrong.append(f"{name} is not in the base")
        elif entry["shape"] != shape:
            wrong.append(f"{name} is {entry['shape']} in the base and {shape} in the adapter")
        elif entry["dtype"] not in tensors.PRECISIONS:
            wrong.append(f"{name} is {entry['dtype']} in the base, to which nothing can be added")
    if wrong:
        raise UserError(
            f"the adapter does not belong to {base}",
            tensors.some(wrong),
            "merge it into the checkpoint that it was trained on (policy.model)",
        )
