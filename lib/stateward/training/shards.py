"""A checkpoint's weights as training left them: whole, by name, one at a time, from FSDP's shards.

The shards are mapped, not loaded: of a 27B model's hundred gigabytes only what is asked for comes into memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stateward.errors import SystemFault


class Shards:
    """The model's shards in a checkpoint's ``actor`` folder, in the precision that the trainer kept them in."""

    def __init__(self, actor: Path, world_size: int) -> None:
        import torch
        import torch.distributed.tensor  # what the shards hold

        self._ranks: list[dict[str, Any]] = [
            # The run's own files: they hold a class of torch, which its safe loader does not know.
            torch.load(
                actor / f"model_world_size_{world_size}_rank_{rank}.pt",
                map_location="cpu",
                weights_only=False,
                mmap=True,
            )
            for rank in range(world_size)
        ]

    def __iter__(self) -> Iterator[str]:
        return iter(self._ranks[0])

    def whole(self, name: str) -> Any:
        """The tensor `name`, put together.

        Raises:
            SystemFault: its parts do not make one tensor.
        """
        import torch
        from torch.distributed.tensor import DTensor

        first = self._ranks[0][name]
        if not isinstance(first, DTensor):
            copies = [rank[name] for rank in self._ranks]
            if not all(torch.equal(copies[0], other) for other in copies[1:]):
                raise SystemFault("bug", f"{name} is not sharded, and yet differs between ranks")
            return copies[0]
        # The last dimension of the mesh is sharded; a dimension before it holds copies (hybrid sharding).
        placement, number = first.placements[-1], first.device_mesh.shape[-1]
        if placement.is_replicate():
            return first.to_local()
        if not placement.is_shard() or any(not other.is_replicate() for other in first.placements[:-1]):
            raise SystemFault("bug", f"{name} is sharded as {first.placements}, which cannot be put together")
        tensor = torch.cat([rank[name].to_local() for rank in self._ranks[:number]], dim=placement.dim)
        if tensor.shape != first.shape:
            raise SystemFault("bug", f"the parts of {name} make {tuple(tensor.shape)}, not {tuple(first.shape)}")
        return tensor
