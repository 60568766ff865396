"""The process that owns a private Ray node: ``python -m stateward.training.ray_keeper SPEC.json``.

It starts the node, says ``ready`` on standard output, and waits until its standard input closes (its starter is done,
or dead, however that came about) or a daemon of the node ends. Then it stops everything that descends from it.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil

from stateward.cluster.processes import adopt_orphans, stop_descendants

_DAEMONS = ("gcs_server", "raylet")


def main(spec_file: str) -> int:
    spec: dict[str, Any] = json.loads(Path(spec_file).read_text())
    adopt_orphans()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the starter decides
    try:
        started = subprocess.run(spec["command"], stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if started.returncode:
            print(f"failed {json.dumps((started.stdout + started.stderr)[-4000:])}", flush=True)
            return 1
        _end_client_server()
        print("ready", flush=True)
        return _watch()
    finally:
        stop_descendants()


def _end_client_server() -> None:
    """Nobody uses it: a process of 90 MB and an open port that runs code."""
    for process in psutil.Process().children(recursive=True):
        if "ray.util.client.server" in process.cmdline():
            process.kill()


def _watch() -> int:
    """Block until the starter closes our standard input (0) or a daemon ends (1)."""
    daemons = [p for p in psutil.Process().children(recursive=True) if p.name() in _DAEMONS]
    handles = {os.pidfd_open(process.pid): process for process in daemons}
    while True:
        readable, _, _ = select.select([sys.stdin, *handles], [], [])
        ended = [handles[fd].name() for fd in readable if fd in handles]
        if ended:
            print(f"ended {' '.join(ended)}", flush=True)
            return 1
        if sys.stdin in readable and not os.read(sys.stdin.fileno(), 4096):
            return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
