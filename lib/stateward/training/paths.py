"""Where a training run keeps its parts, under ``run_dir/train``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

#: Checkpoints that are kept besides one that is being written.
KEEP = 2


@dataclass(frozen=True)
class TrainPaths:
    """Paths of one training run; all absolute, because they are read on other nodes and from other directories."""

    run_dir: Path

    @classmethod
    def of(cls, run_dir: Path | str) -> TrainPaths:
        return cls(Path(run_dir).resolve())

    @property
    def stage(self) -> Path:
        return self.run_dir / "train"

    @property
    def lock(self) -> Path:
        """Held by the one process that trains in this run directory."""
        return self.stage / "lock"

    @property
    def plan(self) -> Path:
        """What is written before the first step: data set, tasks, overrides, agent loop registration."""
        return self.stage / "plan"

    @property
    def dataset(self) -> Path:
        return self.plan / "pool.parquet"

    @property
    def tasks(self) -> Path:
        return self.plan / "tasks.json"

    @property
    def settings(self) -> Path:
        """Read by every rollout worker: the configuration and what was resolved from it."""
        return self.plan / "settings.json"

    @property
    def agent_loops(self) -> Path:
        return self.plan / "agent_loop.yaml"

    @property
    def overrides(self) -> Path:
        return self.plan / "overrides.txt"

    @property
    def driver_spec(self) -> Path:
        return self.plan / "driver.json"

    @property
    def driver_result(self) -> Path:
        """What came of the last start's driver."""
        return self.plan / "driver_result.json"

    @property
    def checkpoints(self) -> Path:
        return self.stage / "checkpoints"

    @property
    def shards(self) -> Path:
        """Every training episode: one journal a rollout worker, sealed when the run is done."""
        return self.stage / "shards"

    @property
    def metrics(self) -> Path:
        return self.stage / "metrics.jsonl"

    @property
    def saved_figures(self) -> Path:
        """The line of the step whose checkpoint was saved last, before it is in `metrics`."""
        return self.plan / "saved_figures.json"

    @property
    def logs(self) -> Path:
        return self.stage / "logs"
