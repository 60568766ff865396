"""Verl's merger of FSDP shards, but every tensor keeps the precision that the base has it in.

Verl 0.9.1 turns all of them into bf16. Some checkpoints hold a few in fp32 (the decay rates of a gated delta net), and
of those the fp32 values of the shards are taken.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from verl.model_merger.base_model_merger import ModelMergerConfig
from verl.model_merger.fsdp_model_merger import FSDPModelMerger

from stateward.training.shards import Shards
from stateward.training.tensors import PRECISIONS, precisions


class Merger(FSDPModelMerger):  # type: ignore[misc]
    def __init__(self, config: ModelMergerConfig, base: Path) -> None:
        super().__init__(config)
        self._base = base

    def _load_and_merge_state_dicts(self, world_size: int, *args: Any, **kwargs: Any) -> dict[str, Any]:
        import torch

        merged: dict[str, Any] = super()._load_and_merge_state_dicts(world_size, *args, **kwargs)
        stored = precisions(self._base)
        others = {name: stored[name] for name in stored.keys() & merged.keys() if stored[name] != "BF16"}
        if others:
            shards = Shards(Path(self.config.local_dir), world_size)
            for name, precision in others.items():
                merged[name] = shards.whole(name).to(getattr(torch, PRECISIONS[precision]), copy=True)
        return merged


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base", type=Path, required=True, help="the checkpoint that was trained")
    parser.add_argument("--actor", type=Path, required=True, help="the folder of shards")
    parser.add_argument("--target", type=Path, required=True, help="the folder to write")
    args = parser.parse_args(argv)
    args.target.mkdir(parents=True, exist_ok=True)
    config = ModelMergerConfig(
        operation="merge",
        backend="fsdp",
        local_dir=str(args.actor),
        hf_model_config_path=str(args.actor / "huggingface"),
        target_dir=str(args.target),
    )
    merger = Merger(config, args.base)
    merger.merge_and_save()
    merger.cleanup()


if __name__ == "__main__":
    main()
