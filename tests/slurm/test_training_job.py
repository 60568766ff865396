"""The heterogeneous training job on a real Slurm: the script that people submit, its signals, and Ray inside it.

Only the driver is a stand-in (tests/verl and tests/e2e train for real): a small program in the place of jobs/train.py.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from stateward.cluster.batch import training_job
from stateward.cluster.one_machine import OneMachineSlurm
from stateward.cluster.profile import ClusterProfile
from stateward.cluster.scheduler import submit

pytestmark = pytest.mark.slurm

# In the place of python: notes its rank, and on the first start stands still until it is signalled.
RANK = """\
#!/bin/bash
echo "$SLURM_PROCID/$SLURM_NTASKS $SLURMD_NODENAME ${SLURM_RESTART_COUNT:-0} $*" >> "$NOTES"
if [ "${SLURM_RESTART_COUNT:-0}" = 0 ] && [ -e "$NOTES.hold" ]; then sleep 600 & wait; fi
"""

DRIVER = """\
import json, os, pathlib, sys
if "--preflight" in sys.argv:
    print("preflight, Ray is there:", "STATEWARD_RAY_ADDRESS" in os.environ)
    sys.exit(0)
import ray
ray.init(address=os.environ["STATEWARD_RAY_ADDRESS"], log_to_driver=False)
@ray.remote(num_gpus=1)
def typesense_from_a_worker():
    import urllib.request
    url = os.environ["TYPESENSE_URL"] + "/collections"
    request = urllib.request.Request(url, headers={"X-TYPESENSE-API-KEY": os.environ["TYPESENSE_API_KEY"]})
    return urllib.request.urlopen(request).status

@ray.remote(num_gpus=1)
def variables_of_devices():
    return sorted(name for name in os.environ if name in ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"))

alive = [n for n in ray.nodes() if n["Alive"]]
pathlib.Path(os.environ["NOTES"]).write_text(json.dumps({
    "nodes": sorted(n["NodeManagerAddress"] for n in alive),
    "gpus": ray.cluster_resources().get("GPU"),
    "head_gpus": [n["Resources"].get("GPU", 0) for n in alive if n["NodeManagerAddress"] == "127.0.0.2"],
    "token": oct(os.stat(os.environ["RAY_AUTH_TOKEN_PATH"]).st_mode & 0o777),
    "arguments": sys.argv[1:],
    "devices": ray.get(variables_of_devices.remote()),
    "typesense": ray.get(typesense_from_a_worker.remote()),
}))
sys.exit(7)
"""


@pytest.fixture
def start(
    on_cluster: OneMachineSlurm, profile: ClusterProfile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[str, Path, Path]]:
    def run(home: Path, python: str = sys.executable, name: str = "job") -> tuple[str, Path, Path]:
        log, notes, script = tmp_path / f"{name}.log", tmp_path / f"{name}.notes", tmp_path / f"{name}.sh"
        monkeypatch.setenv("NOTES", str(notes))
        script.write_text(
            training_job(
                profile=profile,
                name="train",
                log=log,
                config="c.yaml",
                run_dir=str(tmp_path / f"{name} dir; it's"),
                python=python,
                home=str(home),
            )
        )
        (tmp_path / f"{name} dir; it's" / "train").mkdir(parents=True, exist_ok=True)
        return submit(script), log, notes

    return run


def state_of(cluster: OneMachineSlurm, job: str) -> dict[str, str]:
    text = cluster.run("scontrol", "--oneliner", "show", "job", job).stdout.splitlines()[0]
    return dict(part.split("=", 1) for part in text.split() if "=" in part)


def test_one_step_over_both_components_and_a_requeue_after_usr1(
    start: Callable[..., tuple[str, Path, Path]],
    on_cluster: OneMachineSlurm,
    tmp_path: Path,
    until: Callable[..., None],
) -> None:
    fake = tmp_path / "rank.sh"
    fake.write_text(RANK)
    fake.chmod(0o755)
    (tmp_path / "job.notes.hold").touch()
    job, log, notes = start(tmp_path, python=str(fake))
    until(lambda: notes.exists() and len(notes.read_text().splitlines()) == 4)
    on_cluster.run("scancel", "--signal=USR1", "--batch", job, check=True)
    until(lambda: len(notes.read_text().splitlines()) == 8)
    until(lambda: state_of(on_cluster, job)["JobState"] == "COMPLETED")
    lines = [line.split(" ", 3) for line in notes.read_text().splitlines()]
    for restart in ("0", "1"):
        ranks = {line[0]: line[1] for line in lines if line[2] == restart}
        assert ranks == {"0/4": "cpu1", "1/4": "gpu1", "2/4": "gpu2", "3/4": "gpu3"}
    assert "job dir; it's/train" in lines[0][3]
    assert "signal: ending the step to requeue" in log.read_text()


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_ray_boots_over_both_components_and_the_drivers_status_is_the_jobs(
    start: Callable[..., tuple[str, Path, Path]],
    on_cluster: OneMachineSlurm,
    tmp_path: Path,
    until: Callable[..., None],
    profile: ClusterProfile,
    typesense_binary: Path,
) -> None:
    profile.typesense, profile.max_restarts = str(typesense_binary), 0
    (tmp_path / "home" / "jobs").mkdir(parents=True)
    (tmp_path / "home" / "jobs" / "train.py").write_text(DRIVER)
    job, log, notes = start(tmp_path / "home")
    finished = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT")
    until(lambda: state_of(on_cluster, job)["JobState"] in finished, seconds=1200)
    text = log.read_text()
    assert state_of(on_cluster, job)["ExitCode"] == "7:0", text[-4000:]
    seen = json.loads(notes.read_text())
    assert seen["nodes"] == ["127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.5"]
    assert (seen["gpus"], seen["head_gpus"], seen["token"]) == (3, [0], "0o600")
    assert text.count("preflight, Ray is there: False") == 4  # on every node
    assert (seen["typesense"], seen["devices"]) == (200, ["CUDA_VISIBLE_DEVICES"])
    for phase in ("4 nodes see the shared folder", "3 distinct devices, all-reduce 6", "driver ended with status 7"):
        assert phase in text
    # Nothing of the job is left: no process that stands in its scratch folders, no folder.
    assert not list(Path("/tmp").glob(f"sw{job}-*"))
    left = [p for p in Path("/proc").glob("[0-9]*/environ") if f"sw{job}-".encode() in _read(p)]
    assert left == []


FOREIGN = """\
import subprocess, sys
from stateward.cluster.processes import adopt_orphans, stop_descendants
adopt_orphans()
command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--num-cpus=1", "--num-gpus=8"]
command += ["--disable-usage-stats", "--include-dashboard=false", f"--port={sys.argv[1]}"]
done = subprocess.run(command, capture_output=True, text=True)
print("ready" if done.returncode == 0 else done.stdout + done.stderr, flush=True)
sys.stdin.read()
stop_descendants()
"""


@pytest.fixture
def foreign_ray() -> Iterator[psutil.Process]:
    """Somebody else's Ray on this machine, on the default port (if it is free) and in the default folder, no token."""
    with socket.socket() as probe:
        try:
            probe.bind(("", 6379))
            port = 6379
        except OSError:
            port = 0
    if not port:
        with socket.socket() as probe:
            probe.bind(("", 0))
            port = probe.getsockname()[1]
    env = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "SLURM_"))}
    keeper = subprocess.Popen(
        [sys.executable, "-c", FOREIGN, str(port)], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert keeper.stdout is not None
        assert keeper.stdout.readline().strip() == "ready"
        yield psutil.Process(keeper.pid)
    finally:
        assert keeper.stdin is not None
        keeper.stdin.close()
        keeper.wait()


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_two_trainings_and_a_foreign_ray_on_one_node_do_not_meet(
    start: Callable[..., tuple[str, Path, Path]],
    on_cluster: OneMachineSlurm,
    profile: ClusterProfile,
    tmp_path: Path,
    until: Callable[..., None],
    foreign_ray: psutil.Process,
) -> None:
    foreign = {p.pid: p.name() for p in foreign_ray.children(recursive=True) if p.name() in ("gcs_server", "raylet")}
    assert set(foreign.values()) == {"gcs_server", "raylet"}
    (tmp_path / "home" / "jobs").mkdir(parents=True)
    (tmp_path / "home" / "jobs" / "train.py").write_text(
        DRIVER.replace("ray.get(typesense_from_a_worker.remote())", "0")
    )
    profile.train.nodes, profile.max_restarts = 1, 0
    jobs = [start(tmp_path / "home", name=name) for name in ("first", "second")]
    finished = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT")
    until(lambda: all(state_of(on_cluster, job)["JobState"] in finished for job, _, _ in jobs), seconds=1200)
    addresses = set()
    for job, log, notes in jobs:
        text = log.read_text()
        assert state_of(on_cluster, job)["ExitCode"] == "7:0", text[-4000:]
        seen = json.loads(notes.read_text())
        # Two nodes and one device: neither the other job's nor the foreign one's eight.
        assert (len(seen["nodes"]), seen["gpus"]) == (2, 1)
        addresses |= set(re.findall(r"Ray head at (\S+)", text))
    assert len(addresses) == 2
    assert {pid: psutil.Process(pid).name() for pid in foreign} == foreign


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return b""
