"""``jobs/merge.py --after JOBID`` on a real Slurm: the merge starts once that job has ended well, and otherwise never.

The job's own jobs/merge.py is a stand-in, as the real one would take minutes; what is submitted is the real text.
"""

from __future__ import annotations

import re
import runpy
from collections.abc import Callable
from pathlib import Path

import pytest

from stateward.campaign import by_hand
from stateward.cluster import scheduler
from stateward.cluster.one_machine import OneMachineSlurm

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
CONFIG = str(ROOT / "configs" / "practice.yaml")
STAND_IN = """
import pathlib, sys
run_dir = pathlib.Path(sys.argv[sys.argv.index("--run-dir") + 1])
(run_dir / "merged").write_text("\\n".join(sys.argv[1:]))
"""


@pytest.fixture
def run_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home; it's"
    (home / "jobs").mkdir(parents=True)
    (home / "jobs" / "merge.py").write_text(STAND_IN)
    monkeypatch.setattr(by_hand, "HOME", home)
    monkeypatch.setattr(scheduler, "CHECKOUT", home)
    run_dir = tmp_path / "it's a run; here"
    run_dir.mkdir()
    return run_dir


def field(cluster: OneMachineSlurm, job: str, name: str) -> str:
    shown = cluster.run("scontrol", "--oneliner", "show", "job", job, check=True).stdout
    return re.search(rf"\b{name}=(\S*)", shown)[1]  # type: ignore[index]


def held(cluster: OneMachineSlurm, command: str) -> str:
    options = ("--parsable", "--hold", "--output=/dev/null", "--wrap", command)
    return cluster.run("sbatch", *options, check=True).stdout.strip()


def merge_after(job: str, run_dir: Path, capsys: pytest.CaptureFixture[str]) -> tuple[str, Path]:
    """What a person types; the id of the merge's job and its log."""
    main = runpy.run_path(str(ROOT / "jobs" / "merge.py"))["main"]
    arguments = ["--config", CONFIG, "--run-dir", str(run_dir), "--cluster", "practice", "--after", job]
    assert main([*arguments, "train.steps=3"]) == 0
    printed = capsys.readouterr().out
    number = re.search(r"submitted: job (\d+)", printed)[1]  # type: ignore[index]
    return number, run_dir / "slurm" / f"merge-{number}.log"


def test_the_merge_is_released_once_the_job_has_ended_well(
    on_cluster: OneMachineSlurm, run_dir: Path, until: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    training = held(on_cluster, "true")
    merge, log = merge_after(training, run_dir, capsys)
    assert field(on_cluster, merge, "Dependency") == f"afterok:{training}(unfulfilled)"
    on_cluster.run("scontrol", "release", training, check=True)
    until(lambda: field(on_cluster, merge, "JobState") not in ("PENDING", "RUNNING", "COMPLETING"))
    assert field(on_cluster, merge, "JobState") == "COMPLETED", log.read_text()
    assert field(on_cluster, training, "JobState") == "COMPLETED"
    given = (run_dir / "merged").read_text().splitlines()
    assert given == ["--config", CONFIG, "--run-dir", str(run_dir), "train.steps=3"]


def test_the_merge_of_a_job_that_failed_never_starts_and_does_not_pend_for_ever(
    on_cluster: OneMachineSlurm, run_dir: Path, until: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    training = held(on_cluster, "exit 3")
    merge, log = merge_after(training, run_dir, capsys)
    on_cluster.run("scontrol", "release", training, check=True)
    until(lambda: field(on_cluster, merge, "JobState") != "PENDING")
    assert field(on_cluster, training, "JobState") == "FAILED"
    assert field(on_cluster, merge, "JobState") == "CANCELLED"
    assert field(on_cluster, merge, "StartTime") in ("Unknown", field(on_cluster, merge, "EndTime"))
    assert not (run_dir / "merged").exists()
    assert not log.exists()
