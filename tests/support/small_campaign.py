"""A small campaign on a real Slurm with the real engines: how it is called, and how it went."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from stateward.campaign.status_page import status_page
from stateward.cluster.one_machine import OneMachineSlurm
from stateward.practice import dataset_path
from stateward.practice.policy import ensure_policy
from stateward.store import read_records

ROOT = Path(__file__).parents[2]
#: The probe is that of the practice campaign; what it trains and evaluates is less.
TASKS = {"orders_train": slice(None), "orders_benchmark": slice(0, 24, 3)}
SETTINGS = ("evaluate.trials=2", "train.nodes=2", "train.steps=1", "train.groups_per_step=2")


@dataclass
class SmallCampaign:
    """A campaign in `run_dir`; the policy and the task lists lie beside it.

    `before`: the records that a killed array task had written; `printed`: of the call that went on after it; `jobs`: of
    each link, as that call left them.
    """

    run_dir: Path
    slurm: OneMachineSlurm
    before: dict[str, Any] = field(default_factory=dict)
    printed: str = ""
    jobs: dict[str, list[str]] = field(default_factory=dict)

    def prepare(self) -> None:
        folder = self.run_dir.parent
        # A copy: the jobs of one chain must all see the same policy.
        shutil.copytree(ensure_policy(), folder / "policy")
        for name, part in TASKS.items():
            uids = yaml.safe_load((dataset_path() / f"{name}.yaml").read_text())
            (folder / f"{name}.yaml").write_text(yaml.safe_dump(uids[part]))

    def arguments(self, *more: str, run_dir: Path | None = None) -> list[str]:
        """Of a program in jobs/, for this campaign or for one beside it."""
        folder = self.run_dir.parent
        return [
            *("--config", str(ROOT / "configs" / "practice.yaml"), "--run-dir", str(run_dir or self.run_dir), *more),
            f"policy.model={json.dumps(str(folder / 'policy'))}",
            f"tasks.train={json.dumps(str(folder / 'orders_train.yaml'))}",
            f"tasks.benchmark={json.dumps(str(folder / 'orders_benchmark.yaml'))}",
            *SETTINGS,
        ]

    def call(self) -> str:
        """Submit what is missing; what that printed."""
        command = [sys.executable, str(ROOT / "jobs" / "pipeline.py")]
        command += self.arguments("--cluster", "practice", "--shards", "2")
        done = subprocess.run(command, env=self.slurm.env, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        return done.stdout

    def record(self) -> str:
        return (self.run_dir / "slurm" / "chain.json").read_text()

    def queued(self) -> list[str]:
        while True:
            asked = self.slurm.run("squeue", "--noheader", "--array", "--format", "%i %j %T %r")
            if asked.returncode != -signal.SIGPIPE:  # a busy controller closed the connection under it
                asked.check_returncode()
                return asked.stdout.splitlines()

    def status(self) -> str:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SLURM_CONF", self.slurm.env["SLURM_CONF"])
            patch.setenv("PATH", self.slurm.env["PATH"])
            return "\n".join(status_page(self.run_dir)[0])

    def logs(self, link: str) -> str:
        """What all jobs of a link printed, those of the first call too."""
        return "\n".join(log.read_text() for log in (self.run_dir / "slurm").glob(f"{link}-*.log"))

    def run_with_a_kill(self) -> None:
        """Call it, kill a task of the probe's array when it has written some records, and call it again to the end."""
        deadline = time.monotonic() + 3000

        def until(holds: Callable[[], bool]) -> None:
            while not holds():
                assert time.monotonic() < deadline, self.status()
                time.sleep(0.2)

        self.call()
        (probe,) = json.loads(self.record())["probe"]
        until(lambda: journal_rows(self.run_dir / "probe", "0000") >= 5)
        for process in array_task(probe, "0"):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        until(lambda: not self.queued())
        assert not (self.run_dir / "train").exists(), "a chain without its probe went on"
        self.before = {record.trial.key: record.to_json() for record in read_records(self.run_dir / "probe")}
        assert self.before
        self.printed = self.call()
        until(lambda: not self.queued())
        assert (self.run_dir / "report" / "DONE").is_file(), self.status()
        self.jobs = json.loads(self.record())
        assert self.jobs["probe"] != [probe]


def journal_rows(stage: Path, shard: str) -> int:
    return sum(file.read_bytes().count(b"\n") for file in (stage / "shards").glob(f"{shard}-*.jsonl"))


def array_task(job: str, task: str) -> list[psutil.Process]:
    """What an array task consists of: every process that has its variables."""
    wanted, found = {"SLURM_ARRAY_JOB_ID": job, "SLURM_ARRAY_TASK_ID": task}, []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):  # it ended, or it is someone else's
            if wanted.items() <= process.environ().items():
                found.append(process)
    return found
