"""As `scripted_shard`, with an episode that is a child process: what Slurm signals ends it, as it ends a real world."""

from __future__ import annotations

import asyncio

import scripted_shard

from stateward.outcome import EpisodeRecord, Outcome, Trial
from stateward.tasks.task import Task


class ChildRunner(scripted_shard.ScriptedRunner):
    """Void at once if its child was killed, otherwise a pass."""

    async def run(self, task: Task, trial: Trial, seed: int, *, attempt: int) -> EpisodeRecord:
        child = await asyncio.create_subprocess_exec("sleep", "1")
        killed = await child.wait() != 0
        return EpisodeRecord(
            trial=trial,
            outcome=Outcome.VOID if killed else Outcome.PASS,
            reward=float("nan") if killed else 1.0,
            domain=task.domain,
            fault_kind="sandbox" if killed else "",
            fault_cause="the world's process died" if killed else "",
            finish="fault" if killed else "done",
            turns=1,
            seed=seed,
            attempt=attempt,
        )


scripted_shard.ScriptedRunner = ChildRunner  # type: ignore[misc]
run_shard = scripted_shard.run_shard
