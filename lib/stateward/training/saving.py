"""What happens on the driver right after Verl saved a checkpoint."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from verl.trainer.ppo.checkpoint_callback import CheckpointCallback

from stateward.training.paths import KEEP
from stateward.training.verify import mark_verified, prune


class VerifySaved(CheckpointCallback):  # type: ignore[misc]
    """Reads the new checkpoint back, marks it verified, and only then lets older ones go."""

    def on_save(self, trainer: Any, global_step: int, checkpoint_dir: str, async_save: bool = False, **_: Any) -> None:
        folder = Path(checkpoint_dir)
        mark_verified(folder, world_size=trainer.actor_rollout_wg.world_size)
        prune(Path(os.path.dirname(folder)), keep=KEEP)
