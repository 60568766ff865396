"""The simulator's component of a training job, with a stand-in for vLLM's command line."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from stateward.cluster import simulator_node
from stateward.cluster.batch import training_job
from stateward.cluster.node import StepRank
from stateward.cluster.profile import ClusterProfile, Role, load_profile
from stateward.cluster.rendezvous import start_folder
from stateward.cluster.services.vllm import VllmServer
from stateward.cluster.simulator_node import SimulatorNode, is_override
from stateward.config import SimulatorConfig
from stateward.config.simulator import SIMULATOR, read_address
from stateward.errors import SystemFault, UserError

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
GOLDEN = Path(__file__).parent / "golden" / "train-simulator.sh"

STAND_IN = """
import http.server, json, os, sys

def main():
    print("engine's limit", os.environ["VLLM_ENGINE_READY_TIMEOUT_S"], flush=True)
    print("loading weights", flush=True)
    if os.environ["STAND_IN"] == "dies":
        sys.exit(3)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers["content-length"]))
            data = json.dumps({"usage": {"completion_tokens": 1}}).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    class Server(http.server.ThreadingHTTPServer):
        allow_reuse_port = True

    host, port = (sys.argv[sys.argv.index(name) + 1] for name in ("--host", "--port"))
    Server((host, int(port)), Handler).serve_forever()
"""


def with_simulator() -> ClusterProfile:
    profile = load_profile(ROOT / "configs" / "cluster" / "h100.yaml")
    profile.simulator = Role(partition="gpu", cpus=32, memory_gb=256, gpus=4, time="2-00:00:00")
    return profile


def rendered() -> str:
    return training_job(
        profile=with_simulator(),
        name="stateward-train",
        log="stateward-train-%j.log",
        config="configs/q38_full.yaml",
        run_dir="runs/q38_full",
        simulator_seconds=1800.0,
    )


def test_the_job_with_three_components_is_the_golden_one() -> None:
    """To accept a change: python tests/cluster/test_simulator_node.py > tests/cluster/golden/train-simulator.sh"""
    assert rendered() == GOLDEN.read_text()
    subprocess.run(["bash", "-n", str(GOLDEN)], check=True)


def test_the_address_lies_in_the_rendezvous_folder_of_the_start(tmp_path: Path) -> None:
    """The script names it, the ranks find each other by it: both must mean the same folder."""
    (line,) = [line for line in rendered().splitlines() if line.startswith(f"export {SIMULATOR}=")]
    env = {"RUN_DIR": f"{tmp_path}/it's; a run", "SLURM_JOB_ID": "12", "SLURM_RESTART_COUNT": "3", "PATH": os.defpath}
    done = subprocess.run(["bash", "-c", f"{line}; printenv {SIMULATOR}"], env=env, capture_output=True, text=True)
    folder = start_folder(Path(env["RUN_DIR"]) / "train", {**env, "SLURM_HET_JOB_ID": "12"})
    assert done.stdout.strip() == str(folder / "simulator.json")


def test_overrides_are_told_from_options() -> None:
    words = ["--pool", "runs/a=b/train.yaml", "simulator.model=m", "run_dir=r", "train.verl.a-b=1", "--seeds=2"]
    assert [word for word in words if is_override(word)] == ["simulator.model=m", "run_dir=r", "train.verl.a-b=1"]


Started = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(tmp_path: Path) -> Started:
    package = tmp_path / "stand-in" / "vllm" / "entrypoints" / "cli"
    package.mkdir(parents=True)
    for folder in (package, package.parent, package.parent.parent):
        (folder / "__init__.py").touch()
    (package / "main.py").write_text(STAND_IN)
    model = tmp_path / "a model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    env = {
        **os.environ,
        "PYTHONPATH": str(tmp_path / "stand-in"),
        SIMULATOR: str(tmp_path / "start" / "simulator.json"),
        "SLURM_PROCID": "0",
        "SLURM_NTASKS": "1",
        "SLURMD_NODENAME": "gpu9",
        "SLURM_JOB_ID": str(os.getpid()),
    }
    command = [sys.executable, "-m", "stateward.cluster.simulator_node", "--interface", "loopback", "--rank", "4"]
    command += ["--config", str(ROOT / "configs" / "practice.yaml"), "--", f"simulator.model={json.dumps(str(model))}"]

    def begin(mode: str, *overrides: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*command, *overrides],
            env={**env, "STAND_IN": mode},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    return begin


def said_until(process: subprocess.Popen[str], words: str) -> str:
    assert process.stdout is not None
    for line in process.stdout:
        if words in line:
            return line
    raise AssertionError(f"it ended with {process.wait()} and never said {words!r}")


def gave_up(tmp_path: Path) -> str:
    told = json.loads((tmp_path / "start" / "failed-4.json").read_text())
    assert (told["rank"], told["node"]) == (4, "gpu9")
    return str(told["cause"])


def test_it_serves_until_it_is_told_to_end(start: Started, tmp_path: Path) -> None:
    file = tmp_path / "start" / "simulator.json"
    with start("serves") as node:
        assert "rank 4 gpu9" in said_until(node, "completed after")
        assert file.stat().st_mode & 0o777 == 0o600
        served = read_address({SIMULATOR: str(file)})
        assert served.base_url.startswith("http://127.0.0.6:")
        assert served.api_key not in repr(served)
        below = psutil.Process(node.pid).children(recursive=True)
        node.send_signal(signal.SIGTERM)
        assert "the simulator ended" in node.communicate()[0]
    assert node.returncode == 0
    assert not any(process.is_running() for process in below)
    assert not (tmp_path / "start" / "failed-4.json").exists()
    # vLLM's own limit of 600 s must not end a start that ours would let go on.
    assert "engine's limit 1800" in file.with_suffix(".log").read_text()


def test_a_server_that_is_lost_is_told_to_the_other_ranks(start: Started, tmp_path: Path) -> None:
    with start("serves") as node:
        said_until(node, "completed after")
        (server,) = [p for p in psutil.Process(node.pid).children() if "vllm_process" in " ".join(p.cmdline())]
        server.kill()
        assert "  | loading weights" in node.communicate()[0]
    assert node.returncode == 1
    assert "vLLM ended" in gave_up(tmp_path)


def test_one_that_cannot_start_says_its_last_words(start: Started, tmp_path: Path) -> None:
    node = start("dies")
    assert "  | loading weights" in node.communicate()[0]
    assert node.returncode == 1
    assert "exited with status 3" in gave_up(tmp_path)
    assert "loading weights" not in gave_up(tmp_path), "what differs from start to start is no part of the cause"


def test_a_model_that_is_not_there_is_a_mistake(start: Started, tmp_path: Path) -> None:
    node = start("serves", "simulator.model=/nowhere")
    assert "error: simulator.model='/nowhere' is not a checkpoint" in node.communicate()[0]
    assert node.returncode == 2
    assert "/nowhere" in gave_up(tmp_path)


def test_nobody_serves_it_here(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="nothing serves"):
        read_address({})
    with pytest.raises(SystemFault, match=r"left no address in .* within 0 s"):
        read_address({SIMULATOR: str(tmp_path / "simulator.json")})


Served = Callable[..., contextlib.AbstractContextManager[VllmServer]]


@pytest.fixture
def run_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Served], int]]:
    """Run the node in this process with something else in the place of its server."""
    for name in ("adopt_orphans", "stop_descendants"):
        monkeypatch.setattr(simulator_node, name, lambda: None)
    step = StepRank(rank=0, size=1, node="gpu9", job="12", restart=0)
    file = tmp_path / "start" / "simulator.json"
    node = SimulatorNode(step=step, rank=4, address_file=file, interface="", scratch="/tmp")

    def run(served: Served) -> int:
        monkeypatch.setattr(SimulatorNode, "_serve", served)
        return node.run(SimulatorConfig())

    before = signal.getsignal(signal.SIGTERM)
    yield run
    signal.signal(signal.SIGTERM, before)


def test_the_end_of_the_job_does_not_hide_that_the_server_was_lost(
    tmp_path: Path, run_with: Callable[[Served], int]
) -> None:
    cleaned = []
    process = subprocess.Popen(["true"])

    @contextlib.contextmanager
    def lost(*_: object) -> Iterator[VllmServer]:
        try:
            yield VllmServer(base_url="", api_key="", pid=process.pid, log=Path(os.devnull), startup_seconds=0.0)
        finally:
            os.kill(os.getpid(), signal.SIGTERM)
            cleaned.append(process.wait())

    assert run_with(lost) == 1
    assert cleaned == [0]
    assert "vLLM ended" in gave_up(tmp_path)


def test_the_end_of_the_job_does_not_hide_why_the_server_did_not_start(
    tmp_path: Path, run_with: Callable[[Served], int]
) -> None:
    cleaned = []

    @contextlib.contextmanager
    def failed(*_: object) -> Iterator[VllmServer]:
        try:
            if not cleaned:
                raise SystemFault("sampler", "vLLM exited with status 3")
            yield VllmServer(base_url="", api_key="", pid=0, log=Path(os.devnull), startup_seconds=0.0)
        finally:
            try:
                raise ProcessLookupError  # as of a group that is gone already
            except ProcessLookupError:
                os.kill(os.getpid(), signal.SIGTERM)
            cleaned.append("all of it")

    assert run_with(failed) == 1
    assert cleaned == ["all of it"]
    assert "exited with status 3" in gave_up(tmp_path)


def test_the_end_of_the_job_while_the_model_loads_is_no_failure(
    tmp_path: Path, run_with: Callable[[Served], int]
) -> None:
    @contextlib.contextmanager
    def loading(*_: object) -> Iterator[VllmServer]:
        try:
            raise ConnectionError  # it does not answer yet
        except ConnectionError:
            os.kill(os.getpid(), signal.SIGTERM)
        yield VllmServer(base_url="", api_key="", pid=0, log=Path(os.devnull), startup_seconds=0.0)

    assert run_with(loading) == 0
    assert not (tmp_path / "start" / "failed-4.json").exists()


#: A step of the simulator that begins only after the job was told to end; the other step fails at once.
SRUN = """\
case "$*" in *het-group=2*) ;; *) exit 1 ;; esac
until [ -e told ]; do sleep 0.05; done
trap 'touch ended; exit 0' TERM
echo $$ > step
while :; do sleep 0.05; done
"""
#: As Slurm's: it signals the steps that there are.
SCANCEL = """\
touch told
[ ! -e step ] || kill -s TERM "$(cat step)"
"""


def test_a_simulator_that_starts_when_all_is_over_does_not_hold_the_job(tmp_path: Path) -> None:
    programs = {"srun": SRUN, "scancel": SCANCEL, "squeue": "echo RUNNING\n", "fails": "exit 1\n"}
    for name, text in programs.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{text}")
        (tmp_path / name).chmod(0o755)
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "activate").touch()
    env = {"PATH": f"{tmp_path}:{os.defpath}", "PYTHON": "fails", "SLURM_JOB_ID": "12"}
    job = subprocess.Popen(["bash", "-c", rendered()], cwd=tmp_path, env=env, start_new_session=True)
    try:
        assert job.wait(60) == 1
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGKILL)
    assert (tmp_path / "ended").exists()


if __name__ == "__main__":
    print(rendered(), end="")
