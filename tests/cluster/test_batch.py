"""What is rendered for sbatch, against golden files; tests/slurm runs the same text on a real Slurm."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from stateward.cluster.batch import plain_job, training_job
from stateward.cluster.directives import sbatch_lines
from stateward.cluster.profile import load_profile

ROOT = Path(__file__).parents[2]
GOLDEN = Path(__file__).parent / "golden"


def rendered_q38() -> str:
    return training_job(
        profile=load_profile(ROOT / "configs" / "cluster" / "h100.yaml"),
        name="stateward-train",
        log="stateward-train-%j.log",
        config="configs/q38_full.yaml",
        run_dir="runs/q38_full",
    )


def test_the_script_that_people_submit_is_what_the_profile_renders() -> None:
    """To accept a change: python tests/cluster/test_batch.py > sbatch/train_q38.sh"""
    assert (ROOT / "sbatch" / "train_q38.sh").read_text() == rendered_q38()


def test_every_directive_stands_in_every_component() -> None:
    first, second = rendered_q38().split("#SBATCH hetjob")
    names = [
        {line.split("--")[1].split("=")[0] for line in part.splitlines() if line.startswith("#SBATCH --")}
        for part in (first, second)
    ]
    assert names[1] - names[0] == {"gres", "exclusive"}
    assert names[0] <= names[1]
    assert {"partition", "time", "signal", "requeue", "output", "mem", "cpus-per-task"} <= names[0]


def test_a_plain_job() -> None:
    profile = load_profile(ROOT / "configs" / "cluster" / "practice.yaml")
    profile.modules = ["cuda/13"]
    text = plain_job(
        ["python", "jobs/merge.py", "--run-dir", "runs/it's; here"],
        profile=profile,
        role=profile.small,
        name="m",
        log=Path("logs/m-%j.log"),
        dependency="afterok:12",
    )
    assert text == (GOLDEN / "plain.sh").read_text()


def test_a_path_with_a_quote_is_quoted_for_sbatch() -> None:
    lines = sbatch_lines({"output": "/runs/it's; a run/%j.log", "exclusive": True, "qos": None})
    assert lines == ["#SBATCH --output='/runs/it'\"'\"'s; a run/%j.log'", "#SBATCH --exclusive"]


@pytest.mark.parametrize("name", ["train_q38.sh", "merge.sh", "evaluate.sh"])
def test_scripts_are_valid_shell(name: str) -> None:
    subprocess.run(["bash", "-n", str(ROOT / "sbatch" / name)], check=True)


if __name__ == "__main__":
    print(rendered_q38(), end="")
