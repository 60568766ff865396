"""What a probe will cost, before it is submitted: expected trials, GPU-hours, and the shape of the array.

Expected trials are exact for tasks whose success rates are spread as `probe.population`. Time follows from the seconds
of an episode, measured in an earlier stage or assumed, and is an estimate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from stateward.config import Config
from stateward.difficulty.records import probe_stage
from stateward.difficulty.stopping import StopRule, stop_rule
from stateward.errors import UserError
from stateward.store import read_records


@dataclass(frozen=True, kw_only=True)
class EpisodeCost:
    """Seconds of one episode on a replica that runs `episode.concurrency` of them, and attempts a valid trial takes.

    `basis` says where the numbers come from.
    """

    seconds: float
    attempts: float = 1.0
    basis: str = "assumed"

    @classmethod
    def measured(cls, stage_dir: Path) -> EpisodeCost:
        """From the records of an earlier stage, or of a run directory's probe.

        Raises:
            UserError: it holds no valid trial.
        """
        stage_dir = probe_stage(stage_dir)
        records = read_records(stage_dir, columns=("seconds_total",))
        valid = records.columns["outcome"] != b"void"
        if not valid.any():
            raise UserError(f"{stage_dir}: no valid trial to measure", do="assume a number of seconds per episode")
        seconds = float(np.mean(records.columns["seconds_total"]))
        attempts = float(records.columns["attempt"].sum() / valid.sum())
        return cls(seconds=seconds, attempts=attempts, basis=f"measured over {len(valid)} trials in {stage_dir}")


@dataclass(frozen=True, kw_only=True)
class ProbePlan:
    """The plan of one probe.

    Attributes:
        tasks: number of tasks. rule: with n and the tables.
        array_tasks: array tasks (one replica each); `tasks_each` is the most tasks that one gets.
        hours_each: wall clock of one array task, start of its replica included; `startup_seconds` is that start.
        gpus_each: GPUs of one replica.
    """

    tasks: int
    rule: StopRule
    cost: EpisodeCost
    concurrency: int
    array_tasks: int
    gpus_each: int
    startup_seconds: float

    @property
    def trials(self) -> float:
        """Expected valid trials over all tasks."""
        return self.tasks * self.rule.expected_trials()

    @property
    def episodes(self) -> float:
        """Expected attempts, voids included."""
        return self.trials * self.cost.attempts

    @property
    def tasks_each(self) -> int:
        return math.ceil(self.tasks / self.array_tasks)

    @property
    def hours_each(self) -> float:
        return self._hours(self.rule.expected_trials())

    @property
    def gpu_hours(self) -> float:
        return self.array_tasks * self.hours_each * self.gpus_each

    def lines(self) -> list[str]:
        """The plan as text, a line each."""
        n, rule = self.rule.trials, self.rule
        fixed = self.tasks * n
        a, b = rule.population
        out = [
            f"probe {self.tasks} tasks, up to {n} valid trials each, rule {rule.rule!r}",
            f"expected valid trials  {self.trials:,.0f} of {fixed:,} ({self.trials / fixed:.0%}),"
            f" for success rates spread as Beta({a:g}, {b:g})",
        ]
        if rule.rule == "bounded":
            out.append(
                f"decisions that differ  {rule.error():.2%} expected from those at {n} trials;"
                f" at the worst success rate {rule.worst_error():.1%}"
            )
        out += [
            f"episode                {self.cost.seconds:.1f} s, {self.cost.attempts:.2f} attempts a valid trial"
            f" ({self.cost.basis}); {self.concurrency} at a time on a replica",
            f"array                  {self.array_tasks} tasks × {self.gpus_each} GPUs, up to {self.tasks_each}"
            f" tasks each, about {self.hours_each:.2f} h each ({self.startup_seconds:.0f} s of it to start, assumed)",
            f"GPU-hours              {self.gpu_hours:,.1f} ({self.saved_hours:,.1f} fewer than with --fixed)",
        ]
        return out

    @property
    def saved_hours(self) -> float:
        """GPU-hours that the rule saves against ``fixed``, in the same array."""
        return self.array_tasks * self.gpus_each * (self._hours(self.rule.trials) - self.hours_each)

    def _hours(self, trials_each: float) -> float:
        """Wall clock of one array task at so many valid trials a task."""
        work = self.tasks_each * trials_each * self.cost.attempts / self.concurrency
        # The trials of one task run one after the other, so a task that needs all n bounds the time from below.
        chain = self.rule.trials * self.cost.attempts
        return (self.startup_seconds + max(work, chain) * self.cost.seconds) / 3600


def plan_probe(
    config: Config,
    tasks: int,
    cost: EpisodeCost,
    *,
    array_tasks: int | None = None,
    max_array_tasks: int = 64,
    hours: float = 2.0,
    startup_seconds: float = 300.0,
) -> ProbePlan:
    """Plan a probe of `tasks` tasks.

    Args:
        array_tasks: as many; None: enough that one lasts about `hours`, at most `max_array_tasks`, and never so many
            that a replica's slots would stand empty.
        startup_seconds: from the start of an array task to the first episode.

    Raises:
        UserError: a number that cannot work.
    """
    if tasks < 1:
        raise UserError("there is no task to probe", do="name a selector list with tasks in tasks.train")
    if cost.seconds <= 0:
        raise UserError(f"{cost.seconds} seconds per episode", "an episode takes time", "give a positive number")
    rule = stop_rule(config.probe.stop, config.probe, config.curate.bands)
    concurrency = config.episode.concurrency
    if array_tasks is None:
        work = tasks * rule.expected_trials() * cost.attempts / concurrency * cost.seconds
        wanted = math.ceil(work / max(hours * 3600 - startup_seconds, 1.0))
        array_tasks = max(1, min(wanted, max_array_tasks, tasks // concurrency))
    if not 1 <= array_tasks <= tasks:
        raise UserError(
            f"{array_tasks} array tasks for {tasks} tasks", "each array task needs a task, and one must run"
        )
    return ProbePlan(
        tasks=tasks,
        rule=rule,
        cost=cost,
        concurrency=concurrency,
        array_tasks=array_tasks,
        gpus_each=config.serve.tensor_parallel,
        startup_seconds=startup_seconds,
    )
