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


#: Stubs of what the script calls: the step fails, and Slurm's clients refuse as often as their file has lines.
STUBS = {
    "python": "exit 0",  # the failure is worth another start
    "srun": "exit 1",
    "squeue": "refuse squeue; echo RUNNING; echo RUNNING",
    "scontrol": 'refuse scontrol; echo "$@" >> asked; kill $PPID',  # Slurm ends the script
    "sleep": '[ "$1" != infinity ] || exec /bin/sleep infinity',
}
REFUSE = """#!/bin/bash
cd "$(dirname "$0")"
refuse() { if [ -s "$1.refusals" ]; then sed -i 1d "$1.refusals"; trap - PIPE; kill -s PIPE $$; fi; }
"""


def ended(folder: Path, **refusals: int) -> subprocess.CompletedProcess[str]:
    """The training job's script at the end of a failed step, where Slurm's clients refuse `refusals` times."""
    places = folder / "bin"
    places.mkdir()
    for name, text in STUBS.items():
        (places / name).write_text(f"{REFUSE}{text}\n")
        (places / name).chmod(0o755)
        (places / f"{name}.refusals").write_text("no\n" * refusals.get(name, 0))
    text = training_job(
        profile=load_profile(ROOT / "configs" / "cluster" / "practice.yaml"),
        name="t",
        log=str(folder / "log"),
        config="c.yaml",
        run_dir=str(folder / "run"),
        home=str(folder),
    )
    env = {
        "PATH": f"{places}:/usr/bin:/bin",
        "PYTHON": str(places / "python"),
        "SLURM_JOB_ID": "12",
        "HOME": str(folder),
    }
    return subprocess.run(["bash", "-c", text], env=env, capture_output=True, text=True, timeout=120, check=False)


def test_a_busy_controller_is_asked_until_it_puts_the_job_back(tmp_path: Path) -> None:
    done = ended(tmp_path, squeue=2, scontrol=3)
    assert (tmp_path / "bin" / "asked").read_text() == "requeue 12\n"
    assert done.returncode == 1
    assert "requeue after 0 restarts" in done.stdout


def test_a_controller_that_never_answers_does_not_hold_the_devices(tmp_path: Path) -> None:
    done = ended(tmp_path, scontrol=99)
    assert not (tmp_path / "bin" / "asked").exists()
    assert done.returncode == 1
    assert "submit it again" in done.stdout


if __name__ == "__main__":
    print(rendered_q38(), end="")
