"""Two ranks that save checkpoints of a trained model as a run does: Verl's class for it, its sharding and its writer.

``python sharded.py BASE RUN_DIR RANK WORLD_SIZE`` writes RUN_DIR/{full,adapter}/train/checkpoints/global_step_1. In the
place of training, weights are moved at random; what they became, whole, lies beside the shards in ``whole.pt``.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import peft
import torch
from torch.distributed.fsdp import MixedPrecisionPolicy
from transformers import AutoConfig, AutoTokenizer
from verl.utils.checkpoint.fsdp_checkpoint_manager import FSDPCheckpointManager
from verl.utils.fsdp_utils import apply_fsdp2
from verl.utils.model import get_hf_auto_model_class
from verl.workers.engine.fsdp.utils import create_device_mesh

RANK_OF_ADAPTER, ALPHA = 4, 8
STEP = 1e-3


def load(base: Path) -> Any:
    """As ``FSDPEngine._build_module``: the class that Verl chooses, in fp32."""
    config = AutoConfig.from_pretrained(base)
    model = get_hf_auto_model_class(config).from_pretrained(base, dtype=torch.float32, config=config)
    return model.to(torch.float32)


def with_adapter(model: Any) -> Any:
    """As ``FSDPEngine._build_lora_module`` with what `overrides` tells it, but for alpha."""
    settings = peft.LoraConfig(
        r=RANK_OF_ADAPTER,
        lora_alpha=ALPHA,
        target_modules="all-linear",
        task_type=peft.TaskType.CAUSAL_LM,
        bias="none",
    )
    return peft.get_peft_model(model, settings)


def move(model: Any) -> None:
    """Every trained weight a little; of an adapter's, the vision tower's stay, as in a run that sees no image."""
    torch.manual_seed(7)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.requires_grad and ".visual." not in name:
                weight += STEP * (2 * torch.rand(weight.shape) - 1)


def save(model: Any, base: Path, folder: Path) -> None:
    actor, rank = folder / "actor", torch.distributed.get_rank()
    if rank == 0:
        actor.mkdir(parents=True)
        torch.save(model.state_dict(), folder / "whole.pt")
        torch.save({}, folder / "data.pt")
    torch.distributed.barrier()
    mesh = create_device_mesh(torch.distributed.get_world_size(), -1)
    apply_fsdp2(model, {"mesh": mesh, "mp_policy": MixedPrecisionPolicy(), "reshard_after_forward": True}, {})
    optimizer = torch.optim.AdamW([weight for weight in model.parameters() if weight.requires_grad])
    schedule = torch.optim.lr_scheduler.ConstantLR(optimizer)
    tokenizer = AutoTokenizer.from_pretrained(base)
    FSDPCheckpointManager(model, optimizer, schedule, tokenizer).save_checkpoint(str(actor), global_step=1)


def main(base: Path, run_dir: Path, rank: int, world_size: int) -> None:
    torch.distributed.init_process_group(
        "cpu:gloo", init_method=f"file://{run_dir}/meeting", rank=rank, world_size=world_size
    )
    for kind in ("full", "adapter"):
        model = load(base)
        if kind == "adapter":
            model = with_adapter(model)
        move(model)
        save(model, base, run_dir / kind / "train" / "checkpoints" / "global_step_1")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
