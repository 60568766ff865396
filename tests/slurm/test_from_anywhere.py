"""Jobs submitted from inside an allocation, with a shell's own variables, from another folder, on a real Slurm."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from stateward.cluster.one_machine import OneMachineSlurm

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]

WORK = """
import json, os, pathlib

def note(file):
    pathlib.Path(file).with_suffix(".env").write_text(json.dumps({**os.environ, "cwd": os.getcwd()}))
"""

#: An array and a plain job. `setup` names something relative to the checkout, as configs/cluster/h100.yaml does.
SUBMIT = """
import sys
from pathlib import Path
from stateward.cluster.arrays import submit_array
from stateward.cluster.batch import plain_job
from stateward.cluster.profile import load_profile
from stateward.cluster.scheduler import submit

root, folder = Path(sys.argv[1]), Path(sys.argv[2])
profile = load_profile(root / "configs" / "cluster" / "practice.yaml")
profile.setup = ["test -d configs/cluster", f"export PYTHONPATH='{folder}'"]
(folder / "shard.json").write_text("{}")
submit_array(
    "anywork:note", [folder / "shard.json"], profile=profile, role=profile.sample, folder=folder / "a", name="array"
)
command = [sys.executable, "-c", f"import anywork; anywork.note({str(folder / 'plain.json')!r})"]
script = folder / "plain.sh"
script.write_text(plain_job(command, profile=profile, role=profile.small, name="plain", log=folder / "plain.log"))
submit(script)
"""


@pytest.mark.parametrize("allocation", [("--mem-per-cpu=500", "--cpus-per-task=2"), ("--partition=gpu", "--gpus=2")])
def test_an_allocation_and_a_shell_do_not_reach_jobs(
    on_cluster: OneMachineSlurm, tmp_path: Path, until: Callable[..., None], allocation: tuple[str, ...]
) -> None:
    (tmp_path / "anywork.py").write_text(WORK)
    (tmp_path / "submit.py").write_text(SUBMIT)
    shell = ("SBATCH_PARTITION=no-such", "SBATCH_TIMELIMIT=1", "PYTHON=/nowhere/python", "CUDA_VISIBLE_DEVICES=7")
    inner = shlex.join(["env", *shell, sys.executable, str(tmp_path / "submit.py"), str(ROOT), str(tmp_path)])
    done = on_cluster.run("salloc", *allocation, "bash", "-c", f"cd / && umask 077 && {inner}")
    assert done.returncode == 0, done.stdout + done.stderr
    (said,) = [line for line in done.stderr.splitlines() if line.startswith("set aside")]
    assert "2 SBATCH_*" in said
    assert "CUDA_VISIBLE_DEVICES, PYTHON" in said
    found = [tmp_path / "shard.env", tmp_path / "plain.env"]
    logs = [tmp_path / "plain.log", *tmp_path.glob("a/chunk-00/*.out")]
    until(lambda: all(path.exists() and path.read_text().endswith("}") for path in found) or not _queued(on_cluster))
    for path in found:
        assert path.exists(), "\n".join(log.read_text() for log in logs if log.exists())
        env = json.loads(path.read_text())
        assert env["cwd"] == str(ROOT)
        assert "PYTHON" not in env
        assert not [name for name in env if name.startswith("SBATCH_")]
        assert "SLURM_MEM_PER_CPU" not in env
    assert json.loads(found[0].read_text())["SLURM_JOB_PARTITION"] == "gpu"
    assert json.loads(found[0].read_text())["CUDA_VISIBLE_DEVICES"] != "7"


def _queued(cluster: OneMachineSlurm) -> str:
    return cluster.run("squeue", "--noheader", "--states=PENDING,RUNNING,COMPLETING").stdout
