"""Every job as a program: `--help` and `--dry-run` answer, and import nothing heavy. What else jobs are asked for their
arguments is asked in the test's own process (`run_job` in tests/conftest.py)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from programs import HEAVY, run_program

ROOT = Path(__file__).parents[2]
ARRAYS = {"numpy", "scipy", "h5py"}
#: The probe's plan is arithmetic; a chain looks into the journals for what is done.
COUNTING = {"probe", "pipeline"}
#: Arguments with --dry-run, and what is printed. jobs/report.py and jobs/status.py only read; jobs/curate.py needs a
#: probe (tests/difficulty/test_command.py).
DRY_RUNS = {
    "probe": (["practice"], "expected valid trials"),
    "train": (["q38_full"], "actor_rollout_ref.rollout.tensor_model_parallel_size=4"),
    "merge": (["practice"], "would merge the checkpoint of step"),
    "evaluate": (["practice", "--label", "base"], "would evaluate"),
    "pipeline": (["practice", "--cluster", "practice"], "── curate.sh"),
}
JOBS = sorted(path.stem for path in (ROOT / "jobs").glob("*.py"))


@pytest.mark.parametrize("name", JOBS)
def test_help(name: str) -> None:
    printed, imported = run_program(name, "--help")
    assert printed.startswith(f"usage: {name}.py")
    assert not imported & (HEAVY | ARRAYS)


@pytest.mark.parametrize("name", DRY_RUNS)
def test_dry_run(name: str, tmp_path: Path) -> None:
    (config, *options), words = DRY_RUNS[name]
    shared = ("--config", f"configs/{config}.yaml", "--run-dir", str(tmp_path / "run"))
    printed, imported = run_program(name, *shared, "--dry-run", *options)
    assert words in printed
    assert not imported & (HEAVY if name in COUNTING else HEAVY | ARRAYS)
    assert not (tmp_path / "run").exists()


def test_a_mistake_is_told_without_a_traceback() -> None:
    command = [sys.executable, str(ROOT / "jobs" / "pipeline.py"), "--config", "configs/practice.yaml", "--dry-run"]
    done = subprocess.run([*command, "serve.replicas=0"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, "Traceback" in done.stderr) == (2, "", False)
    assert done.stderr.startswith("error: ")
    assert "serve.replicas=0" in done.stderr
