"""jobs/curate.py on the bundled tasks."""

from __future__ import annotations

import functools
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from programs import HEAVY, run_program
from stateward.practice import dataset_path

Curate = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def curate(run_job: Curate) -> Curate:
    return functools.partial(run_job, "curate")


@pytest.fixture
def practice(made: SimpleNamespace, tmp_path: Path) -> list[str]:
    """A run directory with a finished probe of the bundled training tasks; the arguments that name it."""
    uids = yaml.safe_load((dataset_path() / "orders_train.yaml").read_text())
    made.stage(tmp_path / "my run", {uid: ("pf", "ffffffff", "pppppppp", "fpf")[i % 4] for i, uid in enumerate(uids)})
    return ["--config", "configs/practice.yaml", "--run-dir", str(tmp_path / "my run")]


def test_pool_and_drift(curate: Curate, practice: list[str], made: SimpleNamespace, tmp_path: Path) -> None:
    run_dir = tmp_path / "my run"
    dry = curate(*practice, "--dry-run")
    assert dry.returncode == 0, dry.stderr
    assert f"would write {run_dir / 'pool'}" in dry.stdout
    assert not (run_dir / "pool").exists()
    done = curate(*practice)
    assert done.returncode == 0, done.stderr
    assert f"wrote {run_dir / 'pool'}" in done.stdout
    assert "next: python jobs/train.py" in done.stdout
    train = yaml.safe_load((run_dir / "pool" / "train.yaml").read_text())
    assert len(train) > 10
    assert json.loads((run_dir / "pool" / "contamination.json").read_text())["verdict"] == "disjoint"
    assert f"unchanged: {run_dir / 'pool'}" in curate(*practice).stdout
    later = made.stage(tmp_path / "later", dict.fromkeys(train, "pppppppp"), policy="later")
    drift = curate(*practice, "--reprobe", later, "--label", "step5")
    assert drift.returncode == 0, drift.stderr
    assert f"{len(train)} tasks left the useful bands" in drift.stdout
    assert (run_dir / "drift" / "step5" / "drift.jsonl").is_file()


def test_results_from_elsewhere(curate: Curate, practice: list[str], made: SimpleNamespace, tmp_path: Path) -> None:
    uids = yaml.safe_load((dataset_path() / "orders_train.yaml").read_text())
    rows = [{"task": {"id": u}, "ok": i % 2 == 0} for u in uids for i in range(8)]
    path = made.jsonl(tmp_path / "r.jsonl", rows)
    done = curate(*practice, "--input", path, "--dry-run", "curate.fields.uid=task.id", "curate.fields.success=ok")
    assert done.returncode == 0, done.stderr
    assert f"train {len(uids)}, test 0, dropped 0" in done.stdout


def test_mistakes_end_with_status_2_and_no_traceback(curate: Curate, practice: list[str], tmp_path: Path) -> None:
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"uid": "a", "success": true}\n{\n')
    for arguments, says in [
        (["--input", str(bad)], f"error: {bad}:2: not JSON"),
        (["curate.bands.keep=[dificult]"], "did you mean 'difficult'?"),
        (["tasks.benchmark=orders_train.yaml"], "orders_train.yaml:1 and in"),
    ]:
        done = curate(*practice, *arguments)
        assert done.returncode == 2
        assert says in done.stderr
        assert not (tmp_path / "my run" / "pool").exists()


def test_a_dry_run_as_a_program_imports_nothing_heavy(practice: list[str]) -> None:
    printed, imported = run_program("curate", *practice, "--dry-run")
    assert "would write " in printed
    assert not imported & HEAVY
