"""Memory and cores of every step, as a real Slurm gives them: all that its component was allocated, and no less."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from stateward.cluster.arrays import submit_array
from stateward.cluster.batch import training_job
from stateward.cluster.one_machine import OneMachineSlurm
from stateward.cluster.profile import ClusterProfile, Role
from stateward.cluster.scheduler import submit

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="a task cannot be bound to fewer cores than one"),
]

#: In the place of python: notes its cores and what `allocated` makes of Slurm's variables, then waits to be let go.
RANK = """\
#!/bin/bash
ask='import os, sys; from stateward.cluster.node import allocated'
ask+='; print(sys.argv[1], os.environ["SLURMD_NODENAME"], len(os.sched_getaffinity(0)), *allocated(os.environ)[:2])'
case "$2" in *.retry) exit 0 ;; *.simulator_node) what=simulator ;; *) what=training ;; esac
REAL -c "$ask" $what >> NOTES
trap 'exit 0' TERM
until [ -e NOTES.go ]; do sleep 0.2; done
"""


@pytest.fixture(autouse=True)
def one_cpu_per_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """What some versions of sbatch, some sites and some shells set: what srun then asks for, unless it is told."""
    monkeypatch.setenv("SRUN_CPUS_PER_TASK", "1")


def steps(cluster: OneMachineSlurm) -> dict[str, dict[str, str]]:
    """Name of its first node → allocated resources of every running step that is not a batch script."""
    found = {}
    for text in cluster.run("scontrol", "--oneliner", "show", "step", check=True).stdout.splitlines():
        if ".batch " not in text and (tres := re.search(r" TRES=(cpu\S+)", text)):
            nodes = re.search(r" NodeList=(\S+)", text)
            assert nodes is not None, text
            found[nodes[1]] = dict(part.split("=", 1) for part in tres[1].split(","))
    return found


def test_every_component_has_its_own_memory_and_all_its_cores(
    on_binding_cluster: OneMachineSlurm, profile: ClusterProfile, tmp_path: Path, until: Callable[..., None]
) -> None:
    notes = tmp_path / "notes"
    fake = tmp_path / "rank.sh"
    fake.write_text(RANK.replace("REAL", sys.executable).replace("NOTES", str(notes)))
    fake.chmod(0o755)
    cores = os.cpu_count() or 1
    profile.service = Role(partition="cpu", cpus=cores, memory_gb=1, time="10")
    profile.train = Role(partition="gpu", nodes=2, cpus=cores, memory_gb=0, gpus=1, time="10", exclusive=True)
    profile.simulator = Role(partition="gpu", cpus=cores, memory_gb=3, gpus=1, time="10")
    script = tmp_path / "job.sh"
    script.write_text(
        training_job(
            profile=profile,
            name="train",
            log=tmp_path / "job.log",
            config="c.yaml",
            run_dir=str(tmp_path / "run"),
            python=str(fake),
        )
    )
    submit(script)
    until(lambda: notes.exists() and len(notes.read_text().splitlines()) == 4)
    memory = {node: (tres["cpu"], tres["mem"]) for node, tres in steps(on_binding_cluster).items()}
    (tmp_path / "notes.go").touch()
    assert memory == {
        "cpu1": (str(cores), "1G"),
        "gpu[1-2]": (str(2 * cores), "1800000M"),  # --mem=0: all of two nodes
        "gpu3": (str(cores), "3G"),
    }
    rows = [line.split() for line in notes.read_text().splitlines()]
    assert {(what, node): int(usable) for what, node, usable, _, _ in rows} == {
        ("training", "cpu1"): cores,
        ("training", "gpu1"): cores,
        ("training", "gpu2"): cores,
        ("simulator", "gpu3"): cores,
    }
    told = {node: int(memory) for what, node, _, _, memory in rows if what == "training"}
    assert told["cpu1"] == 1024
    assert told["gpu1"] == told["gpu2"] > 1024


def test_a_task_of_an_array_has_all_cores_of_its_job(
    on_binding_cluster: OneMachineSlurm, profile: ClusterProfile, tmp_path: Path, until: Callable[..., None]
) -> None:
    (tmp_path / "corework.py").write_text(
        "import os, pathlib\n\n\ndef note(file):\n"
        "    pathlib.Path(file).write_text(str(len(os.sched_getaffinity(0))))\n"
    )
    profile.setup = [f"export PYTHONPATH='{tmp_path}'"]
    cores = os.cpu_count() or 1
    role = Role(partition="gpu", cpus=cores, memory_gb=1, time="10")
    file = tmp_path / "shard.json"
    file.touch()
    submit_array("corework:note", [file], profile=profile, role=role, folder=tmp_path / "array", name="cores")
    until(lambda: bool(file.read_text()))
    assert file.read_text() == str(cores)
