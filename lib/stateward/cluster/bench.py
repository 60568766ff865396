"""What this suite adds to plain Slurm and plain Ray, measured on a one-machine cluster of its own.

    python -m stateward.cluster.bench [--json FILE]

Each figure stands beside its plain counterpart on the same cluster: an array of 200 tasks, submitted by a process that
runs already (as jobs/pipeline.py does it) and as a command of its own, against one `sbatch --array`; from the
allocation's start to a proven Ray over four nodes against `ray start --head` and one worker; from the driver's end to
no process of the job left. Medians, with the extremes.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import re
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from unittest.mock import patch

import psutil

from stateward.cluster import arrays
from stateward.cluster.batch import training_job
from stateward.cluster.node import port_blocks
from stateward.cluster.one_machine import OneMachineSlurm, free_port_base
from stateward.cluster.processes import adopt_orphans, carrying, stop_descendants
from stateward.cluster.profile import ClusterProfile, Role
from stateward.cluster.scheduler import cancel, submit
from stateward.errors import SystemFault

TASKS = 200
_DRIVER = "import sys, time; '--preflight' in sys.argv or print('driver ends', time.time(), flush=True)"


#: What somebody calls who has nothing running yet.
_COMMAND = """
import sys
from pathlib import Path
from stateward.cluster.arrays import submit_array
from stateward.cluster.profile import load_profile
profile, folder = load_profile(sys.argv[1]), Path(sys.argv[2])
profile.max_array_tasks, profile.sample.extra = 0, {"begin": "now+1hour"}
files = [folder / f"shard-{i:04d}.json" for i in range(int(sys.argv[3]))]
submit_array("builtins:print", files, profile=profile, role=profile.sample, folder=folder, name="bench")
"""
_PRACTICE = Path(__file__).parents[3] / "configs" / "cluster" / "practice.yaml"


def submissions(work: Path, cluster: OneMachineSlurm, rounds: int) -> dict[str, list[float]]:
    """Seconds of each way to submit; they take turns, so that all see the same machine."""
    figures: dict[str, list[float]] = {name: [] for name in ("sbatch", "array", "its sbatch", "its record", "command")}
    profile = _profile()
    importlib.import_module("stateward.cluster.array_script")  # what a process that runs has imported
    for number in range(rounds):
        folder = work / f"submit-{number}"
        folder.mkdir()
        script = folder / "plain.sh"
        script.write_text("#!/bin/bash\ntrue\n")
        plain = ["sbatch", f"--array=0-{TASKS - 1}", "--hold", "--output=/dev/null", "--partition=cpu", str(script)]
        figures["sbatch"].append(_seconds(partial(subprocess.run, plain, check=True, capture_output=True)))
        files = [folder / f"shard-{i:04d}.json" for i in range(TASKS)]
        ours = partial(
            arrays.submit_array, "builtins:print", files, profile=profile, role=profile.sample, folder=folder, name="b"
        )
        with _timed("submit") as its_sbatch, _timed("write_json") as its_record:
            figures["array"].append(_seconds(ours))
        figures["its sbatch"].append(sum(its_sbatch))
        figures["its record"].append(sum(its_record))
        command = [sys.executable, "-c", _COMMAND, str(_PRACTICE), str(folder / "command"), str(TASKS)]
        figures["command"].append(_seconds(partial(subprocess.run, command, check=True)))
        _drain(cluster)
    return figures


def rays(work: Path, cluster: OneMachineSlurm, rounds: int) -> dict[str, list[float]]:
    """Seconds of the plain Ray, of ours until it is proven, and of its end, in turn."""
    figures: dict[str, list[float]] = {name: [] for name in ("ray start", "ready", "gone")}
    for number in range(rounds):
        folder = work / f"ray-{number}"
        folder.mkdir()
        figures["ray start"].append(_plain_ray())
        ready, gone = _training(folder, _profile(), cluster)
        figures["ready"].append(ready)
        figures["gone"].append(gone)
        print(f"Ray, {number + 1} of {rounds}: { ({k: round(v[-1], 2) for k, v in figures.items()}) }", flush=True)
    return figures


_TITLES = {
    "sbatch": f"`sbatch --array` of {TASKS} tasks",
    "array": f"our array of {TASKS} tasks, resumable, one log an attempt",
    "its sbatch": "of it `sbatch` itself",
    "its record": "of it the durable record of its id",
    "command": "our array as a command of its own, with Python's start and imports",
    "ray start": "`ray start --head` and one worker on this machine",
    "ready": "allocation to a proven Ray on 4 nodes",
    "gone": "driver's end to no process of the job left",
}
_PLAIN = {"array": "sbatch", "command": "sbatch", "ready": "ray start"}


def table(figures: dict[str, list[float]]) -> list[str]:
    """The figures as Markdown."""
    lines = ["| | rounds | median | least | most | against plain |", "|---|---:|---:|---:|---:|---:|"]
    for name, row in figures.items():
        ratio = ""
        if name in _PLAIN:
            ratio = f"{statistics.median(row) / statistics.median(figures[_PLAIN[name]]):.2f} ×"
        spread = " | ".join(_words(value) for value in (statistics.median(row), min(row), max(row)))
        lines.append(f"| {_TITLES[name]} | {len(row)} | {spread} | {ratio} |")
    return lines


def _words(seconds: float) -> str:
    return f"{seconds * 1_000:.1f} ms" if seconds < 1 else f"{seconds:.1f} s"


@contextmanager
def _timed(name: str) -> Iterator[list[float]]:
    """Seconds of each call of a function that `arrays` uses."""
    seconds: list[float] = []
    real = getattr(arrays, name)

    def timed(*args: object, **rest: object) -> object:
        began = time.perf_counter()
        try:
            return real(*args, **rest)
        finally:
            seconds.append(time.perf_counter() - began)

    with patch.object(arrays, name, timed):
        yield seconds


def _profile() -> ClusterProfile:
    return ClusterProfile(
        name="bench",
        gpu_type="h100",
        network_interface="loopback",
        service=Role(partition="cpu", cpus=4, memory_gb=8, time="1:00:00"),
        train=Role(partition="gpu", nodes=3, cpus=8, memory_gb=8, gpus=1, time="1:00:00"),
        sample=Role(partition="gpu", cpus=4, memory_gb=8, gpus=1, time="1:00:00", extra={"begin": "now+1hour"}),
        small=Role(partition="cpu", cpus=2, memory_gb=8, time="1:00:00"),
        max_restarts=0,
    )


def _seconds(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def _drain(cluster: OneMachineSlurm) -> None:
    while jobs := cluster.run("squeue", "--noheader", "--format", "%A").stdout.split():
        cancel(set(jobs))
        time.sleep(0.2)


def _plain_ray() -> float:
    """Seconds of a head and of one worker, started one after the other as their own help says."""
    with tempfile.TemporaryDirectory(prefix="swb-", dir="/tmp") as folder:
        ports = next(port_blocks(str(secrets.randbelow(10_000)), 0, "127.0.0.2"))
        ray = [sys.executable, "-m", "ray.scripts.scripts", "start", "--disable-usage-stats", "--num-cpus=8"]
        head = [*ray, "--head", "--include-dashboard=false", f"--temp-dir={folder}", f"--port={ports[0]}"]
        head += ["--node-ip-address=127.0.0.2", "--num-gpus=0", f"--ray-client-server-port={ports[10]}"]
        worker = [*ray, f"--address=127.0.0.2:{ports[0]}", "--node-ip-address=127.0.0.3", "--num-gpus=1"]
        for command in (head, worker):
            command += [f"--min-worker-port={ports[20]}", f"--max-worker-port={ports[-1]}"]
        # With a token of its own, as ours has: one that lies in the user's home would be asked of the worker.
        env = {**os.environ, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
        # The cluster's daemons are below this process too, as orphans that it adopted.
        others = {child.pid for child in psutil.Process().children()}
        began = time.perf_counter()
        try:
            for command in (head, worker):
                done = subprocess.run(
                    command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
                )
                if done.returncode:
                    raise SystemFault("cluster", f"plain `ray start` failed: {(done.stderr or done.stdout)[-2000:]}")
            return time.perf_counter() - began
        finally:
            stop_descendants(spare=others)


def _training(folder: Path, profile: ClusterProfile, cluster: OneMachineSlurm) -> tuple[float, float]:
    """Seconds from the job's start to Ray's proof, and from its driver's end to its last process."""
    (folder / "jobs").mkdir()
    (folder / "jobs" / "train.py").write_text(_DRIVER)
    log, script = folder / "job.log", folder / "job.sh"
    text = training_job(
        profile=profile,
        name="bench",
        log=log,
        config="-",
        run_dir=str(folder / "run"),
        python=sys.executable,
        home=str(folder),
    )
    script.write_text(text)
    job = submit(script)
    deadline = time.monotonic() + 600
    while "driver ends" not in (said := log.read_text() if log.is_file() else ""):
        if time.monotonic() > deadline:
            raise SystemFault("cluster", f"the job did not reach its driver: {said[-2000:]}")
        time.sleep(0.1)
    ended = float(re.search(r"driver ends ([\d.]+)", said)[1])  # type: ignore[index]
    while _processes_of(job, cluster):
        time.sleep(0.02)
    gone = time.time() - ended
    ready = float(re.search(r"\[ *([\d.]+) s\] rank 0 \S+: Ray is ready", log.read_text())[1])  # type: ignore[index]
    return ready, gone


def _processes_of(job: str, cluster: OneMachineSlurm) -> list[int]:
    """Processes that say in their environment that they are of this job; its second component is the next job."""
    of_cluster = carrying({"SLURM_CONF": cluster.env["SLURM_CONF"]})
    return [process.pid for process, env in of_cluster if env.get("SLURM_JOB_ID") in (job, str(int(job) + 1))]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here too")
    parser.add_argument("--rounds", type=int, default=10, help="of submissions (10)")
    parser.add_argument("--ray-rounds", type=int, default=3, help="of Ray, some minutes each (3)")
    args = parser.parse_args(argv)
    adopt_orphans()
    with tempfile.TemporaryDirectory(prefix="swb-", dir="/tmp") as name:
        Path(name).chmod(0o755)
        cluster = OneMachineSlurm(root=Path(name) / "slurm", port_base=free_port_base(12_000, 16_000))
        cluster.root.mkdir()
        try:
            cluster.up()
            os.environ |= {"SLURM_CONF": cluster.env["SLURM_CONF"], "PATH": cluster.env["PATH"]}
            figures = submissions(Path(name), cluster, args.rounds)
            print("\n".join(table(figures)), flush=True)  # the other half takes minutes, and may fail
            if args.ray_rounds:
                of_ray = rays(Path(name), cluster, args.ray_rounds)
                print("\n".join(table(of_ray)))
                figures |= of_ray
        finally:
            cluster.down()
    if args.json:
        args.json.write_text(json.dumps(figures, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
