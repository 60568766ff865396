"""A merged checkpoint against its base, tensor by tensor: names, shapes, dtypes, finite, changed at all and not further
than the optimizer can have moved it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stateward.errors import SystemFault, UserError

#: Tensors that transformers leaves out when it loads a causal model, so that training never saw them: the heads for
#: multi-token prediction. They are carried over from the base unchanged.
UNTRAINED = ("mtp.",)
#: What training can start from and a merge can give back, by the names of safetensors and of torch.
PRECISIONS = {"BF16": "bfloat16", "F16": "float16", "F32": "float32"}
INDEX = "model.safetensors.index.json"
_CARRIED = "model-carried-over.safetensors"


@dataclass(frozen=True, kw_only=True)
class Reach:
    """How far training can have moved a weight w: `absolute` + `relative` · |w|."""

    absolute: float = math.inf
    relative: float = 0.0


def adam_reach(learning_rate: float, weight_decay: float, steps: int) -> Reach:
    """Of AdamW with betas 0.9 and 0.999 from a bf16 base to a bf16 result, whatever the gradients were.

    By Cauchy and Schwarz, |m| / √v is at most (1 - b1) / √(1 - b2) / √(1 - b1² / b2) = 7.28, and the bias corrections
    only lower it (Kingma and Ba 2015, section 2.1, bounds the sparse case). Decay takes the learning rate times
    `weight_decay` of |w| a step (Loshchilov and Hutter 2019), rounding to bf16 at most 2^-9 of it.
    """
    b1, b2 = 0.9, 0.999
    ratio = (1 - b1) / math.sqrt(1 - b2) / math.sqrt(1 - b1 * b1 / b2)
    return Reach(absolute=ratio * learning_rate * steps, relative=learning_rate * weight_decay * steps + 2**-8)


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What `compare` found. `largest` is the largest absolute change of any weight, and the tensor that has it."""

    tensors: int
    changed: int
    unchanged: list[str] = field(default_factory=list)
    carried_over: list[str] = field(default_factory=list)
    largest: float = 0.0
    largest_in: str = ""
    parameters: int = 0


def weight_files(model: Path) -> dict[str, Path]:
    """Tensor name → the safetensors file that holds it.

    Raises:
        UserError: the folder holds no safetensors weights.
    """
    from safetensors import safe_open

    files = sorted(model.glob("*.safetensors"))
    if not files:
        raise UserError(f"{model} holds no *.safetensors", "tensors are compared by name without loading the model")
    found: dict[str, Path] = {}
    for path in files:
        with safe_open(path, framework="pt") as archive:
            found |= dict.fromkeys(archive.keys(), path)
    return found


@dataclass(frozen=True)
class Header:
    """Of a safetensors file. `entries`: tensor name → dtype, shape and data_offsets, these counted from byte `data`."""

    entries: dict[str, Any]
    data: int


def read_header(path: Path) -> Header:
    """8 bytes of length, then JSON, then the tensors' bytes (safetensors, "Format")."""
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        entries: dict[str, Any] = json.loads(file.read(length))
    entries.pop("__metadata__", None)
    return Header(entries, 8 + length)


def precisions(model: Path) -> dict[str, str]:
    """Tensor name → its dtype as safetensors calls it, from the headers alone; without `UNTRAINED` ones.

    Raises:
        UserError: a tensor has none of `PRECISIONS`, so that it could be trained but not be given back.
    """
    headers = (read_header(path) for path in sorted(model.glob("*.safetensors")))
    found = {name: str(e["dtype"]) for header in headers for name, e in header.entries.items()}
    found = {name: precision for name, precision in found.items() if not name.startswith(UNTRAINED)}
    wrong = [f"{name} is {precision}" for name, precision in sorted(found.items()) if precision not in PRECISIONS]
    if wrong:
        raise UserError(
            f"{model} is quantised: {some(wrong)}",
            f"a trained weight cannot be written back as anything but {', '.join(PRECISIONS)}",
            "take the checkpoint in bf16",
        )
    return found


def carry_over(base: Path, merged: Path) -> list[str]:
    """Copy the base's `UNTRAINED` tensors that `merged` lacks into it, as one more file. Returns their names."""
    from safetensors.torch import save_file

    ours, theirs = weight_files(merged), weight_files(base)
    names = sorted(name for name in theirs if name not in ours and name.startswith(UNTRAINED))
    if not names:
        return []
    tensors = dict(_tensors(theirs, names))
    save_file(tensors, merged / _CARRIED, metadata={"format": "pt"})
    weight_map = {name: path.name for name, path in ours.items()} | dict.fromkeys(names, _CARRIED)
    total = sum(path.stat().st_size for path in set(ours.values())) + (merged / _CARRIED).stat().st_size
    (merged / INDEX).write_text(json.dumps({"metadata": {"total_size": total}, "weight_map": weight_map}, indent=1))
    return names


def compare(base: Path, merged: Path, reach: Reach | None = None) -> Comparison:
    """Compare every tensor of `merged` with the one of the same name in `base`; one pair in memory at a time.

    A tensor that was put together wrongly (shards in another order, one shard twice, a replica added to itself) has the
    right shape and finite values; it shows in weights that moved beyond `reach`.

    Raises:
        SystemFault: a name is missing or new, a shape or dtype differs, a value is not finite, a weight moved too far,
            or nothing changed.
    """
    reach = reach or Reach()
    import torch

    ours, theirs = weight_files(merged), weight_files(base)
    wrong = [f"{name} is missing" for name in sorted(theirs.keys() - ours.keys())]
    wrong += [f"{name} is new" for name in sorted(ours.keys() - theirs.keys())]
    if wrong:
        raise SystemFault("bug", f"merged tensors differ from the base's: {some(wrong)}")
    names = sorted(ours)
    unchanged: list[str] = []
    carried: list[str] = []
    largest, largest_in, changed, parameters = 0.0, "", 0, 0
    for (name, old), (_, new) in zip(_tensors(theirs, names), _tensors(ours, names), strict=True):
        parameters += new.numel()
        if old.shape != new.shape or old.dtype != new.dtype:
            wrong.append(f"{name}: {tuple(old.shape)} {old.dtype} became {tuple(new.shape)} {new.dtype}")
            continue
        if not torch.isfinite(new).all():
            wrong.append(f"{name} holds values that are not finite")
            continue
        if torch.equal(old, new):
            (carried if name.startswith(UNTRAINED) else unchanged).append(name)
            continue
        changed += 1
        moved = (new.float() - old.float()).abs()
        beyond = moved > reach.absolute + reach.relative * torch.maximum(old.float().abs(), new.float().abs())
        if beyond.any():
            wrong.append(
                f"{name}: {int(beyond.sum())} of {new.numel()} weights moved by up to {moved.max().item():.3g}, "
                f"further than the optimizer can move them ({reach.absolute:.3g})"
            )
            continue
        difference = moved.max().item()
        if difference > largest:
            largest, largest_in = difference, name
    if wrong:
        raise SystemFault("bug", f"merged tensors do not fit the base: {some(wrong)}")
    if not changed:
        raise SystemFault("bug", f"none of the {len(names)} merged tensors differs from the base: nothing was trained")
    return Comparison(
        tensors=len(names),
        changed=changed,
        unchanged=unchanged,
        carried_over=carried,
        largest=largest,
        largest_in=largest_in,
        parameters=parameters,
    )


def _tensors(files: dict[str, Path], names: list[str]) -> Iterator[tuple[str, Any]]:
    from safetensors import safe_open

    for name in names:
        with safe_open(files[name], framework="pt") as archive:
            yield name, archive.get_tensor(name)


def some(texts: list[str], number: int = 5) -> str:
    """The first `number` of `texts`, and how many more there are."""
    more = f" and {len(texts) - number} more" if len(texts) > number else ""
    return "; ".join(texts[:number]) + more
