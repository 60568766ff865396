"""Campaigns whose profile names an image: what is mounted, what the jobs call, and the option that leaves it out."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from stateward.campaign.mounts import mounts
from stateward.cluster.scheduler import CHECKOUT
from stateward.config import load_config

ROOT = Path(__file__).parents[2]
CONFIG = ROOT / "configs" / "practice.yaml"


def test_everything_that_the_configuration_names_is_mounted_once(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "lists").mkdir()
    (tmp_path / "lists" / "train.yaml").write_text("[]\n")
    overrides = [
        f"policy.model={tmp_path}/model",
        f"tasks.train={tmp_path}/lists/train.yaml",
        f"run_dir={tmp_path}/model/../run",
    ]
    found = mounts(load_config(CONFIG, overrides), str(CONFIG))
    wanted = {CHECKOUT, tmp_path / "model", tmp_path / "lists" / "train.yaml", tmp_path / "run"}
    # The configuration and the practice dataset lie in the checkout, which is one of them.
    assert set(found) == {path.resolve() for path in wanted}
    assert CHECKOUT == ROOT


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    text = yaml.safe_load((ROOT / "configs" / "cluster" / "practice.yaml").read_text())
    path = tmp_path / "imaged.yaml"
    path.write_text(
        yaml.safe_dump(text | {"container": {"image": "/shared/stateward.sif", "binds": ["/data:/data:ro"]}})
    )
    return path


@pytest.fixture
def dry_run(
    run_job: Callable[..., subprocess.CompletedProcess[str]], profile: Path, tmp_path: Path
) -> Callable[..., str]:
    """What a job prints with `--dry-run`, for a cluster whose profile names an image."""

    def printed(job: str, *options: str) -> str:
        shared = ("--config", CONFIG, "--cluster", profile, "--run-dir", tmp_path / "run", "--dry-run")
        done = run_job(job, *shared, *options)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return printed


def test_every_job_of_the_chain_runs_in_the_image(dry_run: Callable[..., str]) -> None:
    printed = dry_run("pipeline")
    assert printed.count("image=/shared/stateward.sif") == 4  # curate, train, merge, report
    assert printed.count("bind /data /data ro") == 4
    assert f"python {ROOT}/jobs/curate.py" in printed
    assert sys.executable not in printed
    without = dry_run("pipeline", "--no-container")
    assert "stateward.sif" not in without
    assert f"{sys.executable} {ROOT}/jobs/curate.py" in without


def test_jobs_submitted_by_hand_run_in_it_too(dry_run: Callable[..., str]) -> None:
    for job, *options in (("train", "--submit"), ("merge", "--after", "12")):
        assert "image=/shared/stateward.sif" in dry_run(job, *options)
        assert "stateward.sif" not in dry_run(job, *options, "--no-container")
