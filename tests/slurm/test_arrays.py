"""Arrays on a real Slurm: chunking, packing, idempotent submission, requeue."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from stateward.cluster.arrays import submit_array
from stateward.cluster.one_machine import OneMachineSlurm
from stateward.cluster.profile import ClusterProfile
from stateward.cluster.scheduler import largest_array, queue
from stateward.errors import UserError

pytestmark = pytest.mark.slurm

WORK = '''
import json, os, pathlib

def note(file):
    """Append which job ran this file, then stand still if it says so and this is the first start."""
    path = pathlib.Path(file)
    line = json.dumps({"job": os.environ["SLURM_JOB_ID"], "restart": os.environ.get("SLURM_RESTART_COUNT", "0")})
    with path.with_suffix(".ran").open("a") as out:
        out.write(line + "\\n")
    if json.loads(path.read_text())["hold"] and os.environ.get("SLURM_RESTART_COUNT", "0") == "0":
        import signal
        path.with_suffix(".holding").touch()
        while True:
            signal.pause()
'''


@pytest.fixture
def work(tmp_path: Path, profile: ClusterProfile) -> Path:
    (tmp_path / "arraywork.py").write_text(WORK)
    profile.setup = [f"export PYTHONPATH='{tmp_path}'"]
    return tmp_path


def shard_files(folder: Path, number: int, *, hold: bool = False) -> list[Path]:
    files = [folder / f"shard-{i:04d}.json" for i in range(number)]
    for file in files:
        file.write_text(json.dumps({"hold": hold}))
    return files


def runs_of(file: Path) -> list[dict[str, str]]:
    path = file.with_suffix(".ran")
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_every_file_runs_once_packed_under_the_cap(
    on_cluster: OneMachineSlurm, profile: ClusterProfile, work: Path, until: Callable[..., None]
) -> None:
    files = shard_files(work, 10)
    profile.max_array_tasks = 4
    jobs = submit_array(
        "arraywork:note", files, profile=profile, role=profile.sample, folder=work / "array", name="packed"
    )
    assert len(jobs) == 1
    until(lambda: all(runs_of(file) for file in files))
    until(lambda: not queue(jobs) or all(job.state == "COMPLETED" for job in queue(jobs)))
    assert [len(runs_of(file)) for file in files] == [1] * 10
    assert len({runs_of(file)[0]["job"] for file in files}) == 4


def test_a_signalled_task_requeues_itself_and_runs_again(
    on_cluster: OneMachineSlurm, profile: ClusterProfile, work: Path, until: Callable[..., None]
) -> None:
    files = shard_files(work, 1, hold=True)
    jobs = submit_array("arraywork:note", files, profile=profile, role=profile.sample, folder=work / "a", name="again")
    until(files[0].with_suffix(".holding").exists)
    task = next(job.job for job in queue(jobs))
    on_cluster.run("scancel", "--signal=USR2", task, check=True)
    until(lambda: len(runs_of(files[0])) == 2)
    assert [run["restart"] for run in runs_of(files[0])] == ["0", "1"]
    (log,) = (work / "a" / "chunk-00").glob("*_log.out")
    assert log.read_text().count("Starting with JobEnvironment") == 2  # the log of the first start is kept


def test_arrays_are_chunked_under_max_array_size(
    on_cluster: OneMachineSlurm, profile: ClusterProfile, work: Path
) -> None:
    assert largest_array() == 1_000
    files = shard_files(work, 2_500)
    profile.max_array_tasks = 0
    profile.array_concurrency = 9
    jobs = submit_array(
        "arraywork:note", files, profile=profile, role=profile.sample, folder=work / "array", name="many"
    )
    held = on_cluster.run("squeue", "--noheader", "--jobs", ",".join(jobs), "--format", "%K").stdout
    on_cluster.run("scancel", *jobs)
    assert len(jobs) == 3
    assert "%3" in held  # the limit is divided among the chunks


def test_a_partition_that_is_not_there_is_refused_in_slurms_words(
    on_cluster: OneMachineSlurm, profile: ClusterProfile, work: Path
) -> None:
    profile.sample.partition = "no-such"
    with pytest.raises(UserError, match="partition"):
        submit_array(
            "arraywork:note",
            shard_files(work, 1),
            profile=profile,
            role=profile.sample,
            folder=work / "array",
            name="nowhere",
        )
