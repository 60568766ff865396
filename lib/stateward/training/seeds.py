"""Several trainings that differ in their seed alone, so that a result can be told from luck."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from stateward.config import Config
from stateward.errors import UserError


@dataclass(frozen=True, kw_only=True)
class SeedRun:
    """One of them.

    Attributes:
        label: what its evaluation is called, so that the report takes all as one method.
        number: from 1; 0 for the only one.
    """

    label: str
    config: Config
    run_dir: Path
    number: int = 0


def require_seeds(number: int) -> None:
    """Raises UserError if `number` is less than 1."""
    if number < 1:
        raise UserError(f"--seeds {number}", "a campaign has at least one training", "leave it out for one")


def seed_runs(config: Config, number: int) -> Iterator[SeedRun]:
    """`number` runs below ``run_dir/seeds``; or, for 1, the campaign itself.

    Run i shuffles the pool and draws its episodes by ``train.seed + i``; everything else is equal.

    Raises:
        UserError: `number` is less than 1.
    """
    require_seeds(number)
    if number == 1:
        yield SeedRun(label="tuned", config=config, run_dir=Path(config.run_dir))
        return
    for i in range(1, number + 1):
        own = copy.deepcopy(config)
        own.train.seed += i
        yield SeedRun(label=f"tuned-seed{i}", config=own, run_dir=Path(config.run_dir) / "seeds" / str(i), number=i)
