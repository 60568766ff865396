"""What every vLLM process of ours does first."""

from __future__ import annotations

import importlib.metadata
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

from stateward.cluster.services.vllm_plugin import OURS, load

CHILD = """
import multiprocessing, signal, sys
from stateward.cluster.services.vllm_plugin import load

def engine(ready):
    load()
    ready.set()
    signal.pause()

if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    process = context.Process(target=engine, args=(ready,))
    process.start()
    ready.wait()
    print("pid", process.pid, flush=True)
    signal.pause()
"""


def test_vllm_finds_it() -> None:
    (found,) = importlib.metadata.entry_points(group="vllm.general_plugins", name="stateward")
    assert found.load() is load


def test_an_engine_ends_with_the_server_that_is_killed(tmp_path: Path) -> None:
    (tmp_path / "server.py").write_text(CHILD)
    environment = {**os.environ, OURS: "1"}
    command = [sys.executable, str(tmp_path / "server.py")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True) as server:
        assert server.stdout is not None
        line = next(line for line in iter(server.stdout.readline, "") if line.startswith("pid "))
        engine = os.pidfd_open(int(line.split()[1]))
        server.send_signal(signal.SIGKILL)
        assert select.select([engine], [], [], 120)[0], "the engine lives on"
