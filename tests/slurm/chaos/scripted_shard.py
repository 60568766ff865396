"""An array task of the chaos rounds: the real shard, journal and sealing, with episodes that a seed decides.

No engine and no world, so that many campaigns fit into minutes: tried is that nothing is lost or run twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import stateward.campaign.sampled as sampled
import stateward.campaign.sampling as sampling
import stateward.episode as episode
from stateward.outcome import EpisodeRecord, Outcome, Trial
from stateward.tasks.task import Task

EPISODE_SECONDS = 0.25


class ScriptedRunner:
    """Outcomes from the trial's seed alone: the same trial ends the same way however often it is killed before."""

    def __init__(self, policy: Any) -> None:
        self.policy = policy

    async def run(self, task: Task, trial: Trial, seed: int, *, attempt: int) -> EpisodeRecord:
        await asyncio.sleep(EPISODE_SECONDS)
        # Now and then a system fault, which must be run again.
        if attempt == 1 and seed % 11 == 0:
            return EpisodeRecord(
                trial=trial,
                outcome=Outcome.VOID,
                reward=float("nan"),
                domain=task.domain,
                fault_kind="sampler",
                fault_cause="scripted",
                seed=seed,
                attempt=attempt,
            )
        passed = seed % 5 < 3
        return EpisodeRecord(
            trial=trial,
            outcome=Outcome.PASS if passed else Outcome.FAIL,
            reward=float(passed),
            domain=task.domain,
            finish="done",
            turns=1,
            seed=seed,
            attempt=attempt,
        )


@asynccontextmanager
async def _open_environment(config: Any) -> AsyncIterator[Any]:
    yield SimpleNamespace(runner=ScriptedRunner)


@asynccontextmanager
async def _open(self: sampled.Checkpoint, log: Path) -> AsyncIterator[Any]:
    yield SimpleNamespace(fingerprint=self.identity)


def run_shard(spec_file: str) -> None:
    """In the place of `stateward.campaign.sampling.run_shard`."""
    sampled.Checkpoint.open = _open  # type: ignore[method-assign]
    episode.open_environment = _open_environment  # type: ignore[assignment]
    sampling.check_prompts = lambda *_, **__: 0  # type: ignore[assignment]
    sampling.run_shard(spec_file)
