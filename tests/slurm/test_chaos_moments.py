"""When the rounds hit, and what they count as a process of a job; no Slurm is needed for that."""

from __future__ import annotations

import importlib
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace

import psutil
import pytest

ROUNDS = Path(__file__).parent / "chaos"


@pytest.fixture
def chaos(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[ModuleType, ModuleType]]:
    """Its modules `faults` and `moments`, found as run.py finds them, and forgotten again."""
    monkeypatch.syspath_prepend(str(ROUNDS))
    yield importlib.import_module("faults"), importlib.import_module("moments")
    for name in ("faults", "moments"):
        del sys.modules[name]


def test_the_seconds_into_a_stage_count_anew_when_the_job_falls_back(chaos: tuple[ModuleType, ModuleType]) -> None:
    moments = chaos[1]
    aim = moments.Aim("ray", random.Random(0))
    aim.stage, aim.delay = "steps", 5.0
    assert not aim.is_due("steps", 10.0)
    assert not aim.is_due("boot", 14.0)
    assert not aim.is_due("steps", 16.0)
    assert not aim.is_due("steps", 20.9)
    assert aim.is_due("steps", 21.0)


def test_a_ray_campaign_is_aimed_at_in_its_boot_and_in_its_steps(chaos: tuple[ModuleType, ModuleType]) -> None:
    lot = random.Random(0)
    assert {chaos[1].Aim("ray", lot).stage for _ in range(40)} == {"boot", "steps"}


def test_steps_run_once_this_driver_has_trained_one(
    chaos: tuple[ModuleType, ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moments = chaos[1]
    metrics = tmp_path / "metrics.jsonl"
    metrics.write_text("{}\n{}\n")  # of a start before
    drivers = iter([None, *[SimpleNamespace(pid=1)] * 2, None, *[SimpleNamespace(pid=2)] * 2])
    monkeypatch.setattr(moments, "training_processes", lambda site: [("process", {})])
    monkeypatch.setattr(moments, "driver", lambda processes: next(drivers))
    stage = moments.Stage(SimpleNamespace(), metrics)
    seen = [stage.now(), stage.now()]
    metrics.write_text("{}\n{}\n{}\n")
    seen += [stage.now(), stage.now(), stage.now()]
    metrics.write_text("{}\n{}\n{}\n{}\n")
    assert [*seen, stage.now()] == ["boot", "start", "steps", "boot", "start", "steps"]


def test_a_process_of_rays_without_its_environment_is_of_the_job(
    chaos: tuple[ModuleType, ModuleType], tmp_path: Path
) -> None:
    conf = str(tmp_path / "slurm.conf")
    raylet = tmp_path / "raylet"
    raylet.write_text("#!/bin/bash\nenv -i sleep 60 & echo $!; wait\n")
    raylet.chmod(0o755)
    env = {**os.environ, "SLURM_CONF": conf, "SLURM_JOB_ID": "7", "SLURM_PROCID": "2"}
    process = subprocess.Popen([raylet], env=env, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    child = psutil.Process(int(process.stdout.readline()))
    try:
        found = chaos[0].job_processes(SimpleNamespace(env={"SLURM_CONF": conf}))
        assert {p.pid: e["SLURM_PROCID"] for p, e in found} == {process.pid: "2", child.pid: "2"}
        assert chaos[0].job_processes(SimpleNamespace(env={"SLURM_CONF": f"{conf}.another"})) == []
    finally:
        child.kill()
        process.communicate(timeout=30)
