"""The whole campaign, stage after stage, on this machine. Each stage is its own process, as it is on a cluster."""

from __future__ import annotations

import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from stateward.config import Config
from stateward.training.seeds import seed_runs

JOBS = Path(__file__).parents[3] / "jobs"


@dataclass(frozen=True, kw_only=True)
class Step:
    """One stage: its title, and the command that runs or continues it; `training` is the number of one of several."""

    title: str
    command: list[str]
    training: int = 0


def steps(config_file: str, config: Config, overrides: Sequence[str], seeds: int = 1) -> list[Step]:
    """The stages of a campaign in order, with `seeds` trainings, each of which is evaluated."""
    shared = ["--config", config_file, "--run-dir", config.run_dir]

    def job(name: str, *arguments: str) -> list[str]:
        return [sys.executable, str(JOBS / f"{name}.py"), *shared, *arguments, *overrides]

    tasks = f"{config.tasks.train} and {config.tasks.benchmark}"
    of_seeds = ["--seeds", str(seeds)] if seeds > 1 else []
    times = f", with {seeds} seeds" if seeds > 1 else ""
    return [
        Step(
            title=f"probe: the base policy on the training tasks, up to {config.probe.trials} trials each; then"
            f" evaluate it: {config.evaluate.trials} trials per held-out task",
            command=job("probe", "--evaluate-base"),  # one server start for both
        ),
        Step(title="curate: keep the tasks that it sometimes solves", command=job("curate")),
        Step(title=f"train: GRPO, {config.train.steps} steps{times}", command=job("train", *of_seeds)),
        Step(title="merge: the trained shards into one checkpoint", command=job("merge", *of_seeds)),
        *(
            Step(
                title=f"evaluate {run.label}: {config.evaluate.trials} trials per held-out task",
                command=job("evaluate", "--label", run.label, *_model(run.run_dir / "merged", seeds)),
                training=run.number,
            )
            for run in seed_runs(config, seeds)
        ),
        Step(title=f"report ({tasks})", command=[sys.executable, str(JOBS / "report.py"), config.run_dir]),
    ]


def _model(merged: Path, seeds: int) -> list[str]:
    return ["--model", str(merged)] if seeds > 1 else []


def plan_lines(plan: Sequence[Step]) -> Iterator[str]:
    """What a dry run prints of each stage. Of many trainings the evaluations of the first and of the last stand for
    all."""
    last = max(step.training for step in plan)
    for step in plan:
        if step.training in (0, 1, last) or last <= 3:
            yield from (step.title, f"  {shlex.join(step.command)}")
        elif step.training == 2:
            yield f"... and of seeds 2 to {last - 1} likewise"


def run_steps(plan: Sequence[Step]) -> int:
    """Run the stages one after the other; the first that does not end with status 0 ends the campaign for now.

    An interrupt ends the running stage too, which is waited for, so that it can close its journal.
    """
    began = time.monotonic()
    for number, step in enumerate(plan, 1):
        print(f"\n── {number}/{len(plan)} {step.title}", flush=True)
        print(f"   $ {shlex.join(['python', *map(_short, step.command[1:])])}", flush=True)
        started = time.monotonic()
        process = subprocess.Popen(step.command)
        try:
            status = process.wait()
        except BaseException:
            process.terminate()
            process.wait()
            raise
        print(f"   {time.monotonic() - started:.0f} s", flush=True)
        if status:
            print(
                f"\nstopped in stage {number} ({step.title}) with status {status}; the same command goes on from here"
            )
            return status
    print(f"\nthe whole campaign took {time.monotonic() - began:.0f} s in this call")
    return 0


def _short(argument: str) -> str:
    """A path of ours as people type it."""
    path = Path(argument)
    return str(path.relative_to(JOBS.parent)) if path.is_absolute() and path.is_relative_to(JOBS.parent) else argument
