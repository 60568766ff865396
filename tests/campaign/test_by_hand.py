"""Jobs that are submitted by hand: what `--submit` and `--after` render."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from stateward.campaign.by_hand import merge_script, training_script
from stateward.campaign.job_record import submitted_jobs
from stateward.cluster.profile import load_profile
from stateward.config import load_config
from stateward.errors import UserError

ROOT = Path(__file__).parents[2]
RunJob = Callable[..., subprocess.CompletedProcess[str]]


def test_train_submit_is_the_script_that_people_submit(run_job: RunJob, tmp_path: Path) -> None:
    config = str(ROOT / "configs" / "q38_full.yaml")
    arguments = ("--config", config, "--run-dir", str(ROOT / "runs" / "q38_full"), "--submit", "--cluster", "h100")
    done = run_job("train", *arguments, "--dry-run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == (ROOT / "sbatch" / "train_q38.sh").read_text()


def test_the_job_has_the_nodes_and_gpus_that_the_configuration_trains_on() -> None:
    profile = load_profile(ROOT / "configs" / "cluster" / "h100.yaml")
    config = load_config(ROOT / "configs" / "q38_full.yaml", ["train.nodes=2", "train.gpus_per_node=4"])
    script = training_script("configs/q38_full.yaml", config, profile, ["train.nodes=2"])
    workers = script.split("#SBATCH hetjob")[1]
    assert "#SBATCH --nodes=2\n" in workers
    assert "#SBATCH --gres=gpu:h100:4\n" in workers
    assert '--run-dir "$RUN_DIR" train.nodes=2 "$@"' in script


def test_an_endpoint_beside_the_driver_is_refused_where_nodes_are_machines() -> None:
    """With nodes that are all this machine it is everybody's."""
    config = load_config(ROOT / "configs" / "q38_full.yaml", ["episode.user.base_url=http://localhost:8080/v1"])
    profile = load_profile(ROOT / "configs" / "cluster" / "h100.yaml")
    with pytest.raises(UserError, match="is each node's own address"):
        training_script("configs/q38_full.yaml", config, profile, [])
    profile.network_interface = "loopback"
    assert "srun" in training_script("configs/q38_full.yaml", config, profile, [])


def test_a_merge_that_waits_for_a_job() -> None:
    profile = load_profile(ROOT / "configs" / "cluster" / "practice.yaml")
    config = load_config(ROOT / "configs" / "practice.yaml", ["run_dir=/runs/it's mine"])
    script = merge_script("configs/practice.yaml", config, profile, ["train.steps=3"], after="71")
    assert "#SBATCH --dependency=afterok:71\n#SBATCH --kill-on-invalid-dep=yes\n" in script
    quoted = "'/runs/it'\"'\"'s mine'"
    assert f"exec python jobs/merge.py --config configs/practice.yaml --run-dir {quoted} train.steps=3\n" in script


def test_a_step_that_does_not_fit_its_devices_is_refused_before_it_is_submitted(
    run_job: RunJob, tmp_path: Path
) -> None:
    shared = ("--config", "configs/practice.yaml", "--run-dir", str(tmp_path / "run"), "--cluster", "practice")
    for name, *arguments in (("train", "--submit"), ("pipeline",)):
        done = run_job(name, *shared, *arguments, "--dry-run", "train.nodes=3")
        assert done.returncode == 2
        assert "3 does not divide 8 x 8 = 64 episodes" in done.stderr


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("train", ["--submit"]), ("merge", ["--after", "7"]), ("train", ["--submit", "--seeds", "2"])],
)
def test_what_cannot_be_submitted_says_what_to_change(run_job: RunJob, name: str, arguments: list[str]) -> None:
    done = run_job(name, "--config", "configs/practice.yaml", *arguments)
    assert done.returncode == 2
    assert "do:" in done.stderr


def test_a_second_submission_of_the_training_finds_the_first(tmp_path: Path) -> None:
    """Slurm's clients are stood in for: what is tried is what is kept of the first call."""
    (tmp_path / "bin").mkdir()
    for name, text in {"sbatch": "cat > ../script; echo 71", "squeue": "cat ../queue", "srun": ":"}.items():
        (tmp_path / "bin" / name).write_text(f'#!/bin/sh\ncd "$(dirname "$0")"\n{text}\n')
        (tmp_path / "bin" / name).chmod(0o755)
    env = {**os.environ, "PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    run_dir = tmp_path / "it's a run"

    def submit(*more: str) -> str:
        command = [sys.executable, str(ROOT / "jobs" / "train.py"), "--config", str(ROOT / "configs" / "practice.yaml")]
        command += ["--run-dir", str(run_dir), "--submit", "--cluster", "practice", *more]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=env)
        assert done.returncode == 0, done.stderr
        return done.stdout

    (tmp_path / "queue").write_text("")
    log = shlex.quote(str(run_dir / "slurm" / "train-71.log"))
    assert submit().startswith(f"submitted: job 71; log: {log}\n")
    assert (
        f"#SBATCH --output={shlex.quote(str(run_dir / 'slurm' / 'train-%j.log'))}\n"
        in (tmp_path / "script").read_text()
    )
    (tmp_path / "script").unlink()
    (tmp_path / "queue").write_text("71+0|PENDING|Priority|train\n71+1|PENDING|Priority|train\n")
    said = submit("train.steps=7")
    assert said.startswith("job 71 of an earlier call is queued or running; nothing was submitted\n")
    assert "config.train.steps" in said
    assert not (tmp_path / "script").exists()
    assert submitted_jobs(run_dir) == {"train": ["71"]}  # which jobs/status.py shows
