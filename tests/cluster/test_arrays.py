"""Arrays without a Slurm: how they are cut and packed, what is handed to sbatch, and what a task makes of it."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from stateward.cluster.array_task import _write_call
from stateward.cluster.arrays import _in_image, chunks, pack, submit_array
from stateward.cluster.profile import ClusterProfile, load_profile
from stateward.cluster.scheduler import largest_array
from stateward.errors import UserError

ROOT = Path(__file__).parents[2]
GOLDEN = Path(__file__).parent / "golden"

#: An sbatch that takes arrays of at most $LIMIT tasks, and gives them the numbers 1, 2, ...
SBATCH = r"""#!/bin/bash
script=${!#}
number=$(sed -n 's/^#SBATCH --array=0-\([0-9]*\)%.*/\1/p' "$script")
if [ $((number + 1)) -gt "$LIMIT" ]; then
    echo "sbatch: error: Batch job submission failed: Invalid job array specification" >&2
    exit 1
fi
echo "$script" >> "$CALLS"
wc -l < "$CALLS"
"""


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the stub of sbatch notes the scripts that it took."""
    folder = tmp_path / "bin"
    folder.mkdir()
    texts = {"sbatch": SBATCH, "srun": "#!/bin/sh\n", "squeue": "#!/bin/sh\necho '1_0|PENDING|Priority|x'\n"}
    texts["scontrol"] = "#!/bin/sh\necho asked >> \"$CALLS.asked\"; printf 'MaxArraySize            = 11\\n'\n"
    for name, text in texts.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    monkeypatch.setenv("LIMIT", "10")
    return tmp_path / "calls"


@pytest.fixture
def profile() -> ClusterProfile:
    profile = load_profile(ROOT / "configs" / "cluster" / "practice.yaml")
    profile.max_array_tasks = 0
    return profile


def call(tmp_path: Path, profile: ClusterProfile, number: int) -> list[str]:
    files = [tmp_path / f"shard-{i:04d}.json" for i in range(number)]
    return submit_array(
        "work:note", files, profile=profile, role=profile.sample, folder=tmp_path / "it's; a", name="campaign-probe"
    )


def test_chunks_and_packs_hold_everything_once_and_in_order() -> None:
    assert [list(part) for part in chunks(7, limit=3)] == [[0, 1], [2, 3], [4, 5, 6]]
    assert chunks(3, limit=3) == [range(3)]
    files = [Path(f"/s/{i}") for i in range(5)]
    assert pack(files, 2) == [["/s/0", "/s/1"], ["/s/2", "/s/3", "/s/4"]]
    assert pack(files, 0) == pack(files, 9) == [[str(file)] for file in files]


def test_the_script_is_the_golden_one(tmp_path: Path, profile: ClusterProfile, calls: Path) -> None:
    profile.array_concurrency = 2
    assert call(tmp_path, profile, 3) == ["1"]
    script = Path(calls.read_text().strip())
    text = script.read_text().replace(sys.executable, "PYTHON").replace(script.stem, "array-0")
    text = text.replace(str(tmp_path), "/runs")
    golden = GOLDEN / "array.sh"
    assert text == golden.read_text(), f"write this to {golden} if it is meant:\n{text}"
    assert not (calls.with_suffix(".asked")).exists()  # the controller was called once, by sbatch


def test_an_array_that_is_refused_for_its_size_is_cut(tmp_path: Path, profile: ClusterProfile, calls: Path) -> None:
    profile.array_concurrency = 6
    assert call(tmp_path, profile, 25) == ["1", "2", "3"]
    scripts = [Path(line) for line in calls.read_text().splitlines()]
    assert [script.parent.name for script in scripts] == ["chunk-00", "chunk-01", "chunk-02"]
    tasks = [task for script in scripts for task in json.loads(script.with_suffix(".json").read_text())["tasks"]]
    assert tasks == [[f"{tmp_path}/shard-{i:04d}.json"] for i in range(25)]
    # The limit of tasks at a time is shared.
    arrays = [line for script in scripts for line in script.read_text().splitlines() if "--array" in line]
    assert arrays == ["#SBATCH --array=0-7%2"] * 2 + ["#SBATCH --array=0-8%2"]
    # Nothing is left of what was refused.
    assert len(list((tmp_path / "it's; a" / "chunk-00").iterdir())) == 2


def test_any_other_refusal_is_told_with_what_to_do(
    tmp_path: Path, profile: ClusterProfile, calls: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LIMIT", "0")
    with pytest.raises(UserError, match="Invalid job array specification") as caught:
        call(tmp_path, profile, 5)
    assert "doctor" in caught.value.do
    assert not (tmp_path / "it's; a" / "jobs.json").exists()


@pytest.mark.parametrize(("parameters", "limit"), [("", 10), ("bf_interval=1,max_array_tasks=4", 4)])
def test_the_largest_array(
    parameters: str, limit: int, tmp_path: Path, calls: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = f"MaxArraySize            = 11\nSchedulerParameters     = {parameters}\n"
    (tmp_path / "bin" / "scontrol").write_text(f"#!/bin/sh\ncat <<'END'\n{text}END\n")
    assert largest_array() == limit


WORK = """
import json, pathlib

def note(file):
    with pathlib.Path(file).with_suffix(".ran").open("a") as out:
        out.write("ran\\n")
"""


def task(tmp_path: Path, array: Path) -> subprocess.CompletedProcess[str]:
    """The second task of array 7 as its node starts it."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("SLURM_")}
    slurm = {"SLURM_JOB_ID": "9", "SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "1"}
    command = [sys.executable, "-m", "stateward.cluster.array_task", str(array.parent), str(array)]
    env |= {**slurm, "SUBMITIT_EXECUTOR": "slurm", "PYTHONPATH": str(tmp_path)}
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


def test_a_task_makes_its_own_call_and_keeps_it_over_its_restarts(tmp_path: Path) -> None:
    (tmp_path / "taskwork.py").write_text(WORK)
    folder = tmp_path / "it's; a"
    folder.mkdir()
    array: dict[str, Any] = {"function": "taskwork:note", "minutes": 30, "timeouts": 4}
    array["tasks"] = [[f"{tmp_path}/{i}.json"] for i in range(3)]
    (folder / "array.json").write_text(json.dumps(array))
    done = task(tmp_path, folder / "array.json")
    assert done.returncode == 0, done.stderr
    assert [path.name for path in tmp_path.glob("*.ran")] == ["1.ran"]
    file = folder / "7_1_submitted.pkl"
    kept = pickle.loads(file.read_bytes())
    assert (kept.args, kept._timeout_min, kept._timeout_countdown) == (("taskwork:note", array["tasks"][1]), 30, 4)
    # What submitit keeps at a time-out counts from then on, not the array's file.
    kept.set_timeout(30, 3)
    kept.dump(file)
    assert task(tmp_path, folder / "array.json").returncode == 0
    assert pickle.loads(file.read_bytes())._timeout_countdown == 3
    assert (tmp_path / "1.ran").read_text() == "ran\nran\n"
    assert sorted(path.name for path in folder.iterdir()) == ["7_1_0_result.pkl", "7_1_submitted.pkl", "array.json"]


def test_the_call_is_on_disk_before_its_name_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[tuple[str, str]] = []
    fsync, replace = os.fsync, os.replace

    def noted_fsync(fd: int) -> None:
        done.append(("fsync", os.readlink(f"/proc/self/fd/{fd}")))
        fsync(fd)

    def noted_replace(old: Path, new: Path) -> None:
        if Path(new).suffix == ".pkl":
            done.append(("replace", str(new)))
        replace(old, new)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(os, "replace", noted_replace)
    pickle_file = tmp_path / "7_1_submitted.pkl"
    _write_call(pickle_file, {"function": "work:note", "tasks": [["a"], ["b"]], "minutes": 30, "timeouts": 4}, 1)
    assert [(what, Path(file).name) for what, file in done] == [
        ("fsync", f".7_1_submitted.pkl.{os.getpid()}"),
        ("replace", "7_1_submitted.pkl"),
        ("fsync", tmp_path.name),
    ]
    assert pickle.loads(pickle_file.read_bytes()).args == ("work:note", ["b"])


def test_a_launcher_that_a_task_may_be_reading_is_not_written_over(tmp_path: Path, profile: ClusterProfile) -> None:
    profile.container.image = "/images/a.sif"
    command = _in_image(profile, tmp_path, [])
    script = tmp_path / "in-image.sh"
    assert command == f"bash {script}"
    before = script.stat()
    _in_image(profile, tmp_path, [])
    assert (script.stat().st_ino, script.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    text = script.read_text()
    with script.open() as reader:
        first = reader.readline()
        _in_image(profile, tmp_path, [Path("/data")])
        assert first + reader.read() == text
    assert "/data" in script.read_text()


def test_flags_of_a_role_stand_in_the_script(tmp_path: Path, profile: ClusterProfile, calls: Path) -> None:
    profile.sample.extra = {"contiguous": True, "overcommit": False, "exclusive": True, "reservation": "course"}
    call(tmp_path, profile, 1)
    lines = Path(calls.read_text().strip()).read_text().splitlines()
    assert {"#SBATCH --contiguous", "#SBATCH --exclusive", "#SBATCH --reservation=course"} <= set(lines)
    assert not [line for line in lines if "overcommit" in line]


def test_all_of_a_nodes_memory_is_asked_for(tmp_path: Path, profile: ClusterProfile, calls: Path) -> None:
    profile.sample.memory_gb, profile.sample.extra = 0, {"nice": 0}
    call(tmp_path, profile, 1)
    lines = Path(calls.read_text().strip()).read_text().splitlines()
    assert {"#SBATCH --mem=0", "#SBATCH --nice=0"} <= set(lines)
