"""What a process may use of its allocation, with a real affinity and with control groups written to a folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from stateward.cluster.limits import memory_limit, withheld

ASK = "import json; from stateward.cluster.limits import withheld; print(json.dumps(withheld(64, 1)))"


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core cannot be taken away")
def test_a_process_that_is_bound_to_one_core_says_so() -> None:
    command = f"import os; os.sched_setaffinity(0, {{min(os.sched_getaffinity(0))}}); {ASK}"
    said = json.loads(
        subprocess.run([sys.executable, "-c", command], capture_output=True, check=True, text=True).stdout
    )
    assert len(said) == 1
    assert said[0].startswith("may run on 1 of ")
    assert "--cpu-bind=none" in said[0]


def groups(folder: Path, own: str, limits: dict[str, str]) -> dict[str, Path]:
    """A tree of control groups: path of a file below the root → its text."""
    for name, text in limits.items():
        (folder / "root" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "root" / name).write_text(text + "\n")
    (folder / "own").write_text(own)
    return {"root": folder / "root", "own": folder / "own"}


V2 = "0::/slurm/job_7/step_0/task_1\n"
V1 = "9:cpuset:/slurm\n4:memory:/slurm/job_7/step_0\n1:name=systemd:/\n0::/\n"


@pytest.mark.parametrize(
    ("own", "limits", "expected"),
    [
        (V2, {"slurm/job_7/step_0/task_1/memory.max": "max", "slurm/job_7/step_0/memory.max": str(128 << 20)}, 128),
        (V2, {"slurm/job_7/memory.max": str(96 << 20), "slurm/job_7/step_0/memory.max": str(128 << 20)}, 96),
        (V2, {"slurm/job_7/step_0/memory.max": "max"}, None),
        (V1, {"memory/slurm/job_7/step_0/memory.limit_in_bytes": str(64 << 20)}, 64),
        (V1, {"memory/slurm/other/memory.limit_in_bytes": str(64 << 20)}, None),
    ],
)
def test_the_lowest_limit_on_the_way_up_counts(
    tmp_path: Path, own: str, limits: dict[str, str], expected: int | None
) -> None:
    assert memory_limit(**groups(tmp_path, own, limits)) == expected


def test_a_step_with_less_memory_than_its_job_is_told(tmp_path: Path) -> None:
    cpus = len(os.sched_getaffinity(0))
    tree = groups(tmp_path, V2, {"slurm/job_7/step_0/memory.max": str(128 << 20)})
    (said,) = withheld(cpus, 900, **tree)
    assert said.startswith("may use 128 MB of 900 MB")
    assert "--mem=0" in said
    assert withheld(cpus, 130, **tree) == []  # a node's RealMemory is set somewhat below its memory


def test_a_container_that_is_smaller_than_the_pretended_node_is_the_machine(tmp_path: Path) -> None:
    cores = len(os.sched_getaffinity(0))
    limits = {"memory.max": str(64 << 20), "slurm/job_7/memory.max": str(64 << 20)}
    limits["cpuset.cpus.effective"] = f"0-{cores - 1}" if cores > 1 else "0"
    assert withheld(4096, 900_000, **groups(tmp_path, V2, limits)) == []
