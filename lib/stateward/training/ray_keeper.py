"""The process that owns a private Ray node: ``python -m stateward.training.ray_keeper SPEC.json``.

It starts the node, says ``ready`` on standard output, and waits until its standard input closes (its starter is done,
or dead, however that came about) or a daemon of the node ends. Then it stops everything that descends from it, keeps
Ray's logs and removes Ray's folder.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil

from stateward.cluster.processes import adopt_orphans, stop_descendants

_DAEMONS = ("gcs_server", "raylet")
_ATTEMPTS = 3


def main(spec_file: str) -> int:
    spec: dict[str, Any] = json.loads(Path(spec_file).read_text())
    adopt_orphans()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the starter decides
    try:
        # Ray gives its own daemons half a minute to register, which a crowded machine may need twice.
        for _ in range(_ATTEMPTS):
            started = subprocess.run(spec["command"], stdin=subprocess.DEVNULL, capture_output=True, text=True)
            if started.returncode == 0:
                break
            stop_descendants()
        else:
            last = (started.stdout + started.stderr).strip().splitlines()[-1:]
            _say(f"failed {json.dumps(''.join(last))}")
            return 1
        _end_client_server()
        _say("ready")
        return _watch()
    finally:
        stop_descendants()
        keep_logs(Path(spec["folder"]), Path(spec["logs"]))
        shutil.rmtree(spec["folder"], ignore_errors=True)


def _say(text: str) -> None:
    try:
        print(text, flush=True)
    except BrokenPipeError:
        return  # the starter is gone; standard input says so next


def _end_client_server() -> None:
    """Nobody uses it: a process of 90 MB and an open port that runs code."""
    for process in psutil.Process().children(recursive=True):
        if "ray.util.client.server" in process.cmdline():
            process.kill()
            process.wait()  # it is our child now, and would stay as a zombie


def _watch() -> int:
    """Block until the starter closes our standard input (0) or a daemon ends (1)."""
    daemons = [p for p in psutil.Process().children(recursive=True) if p.name() in _DAEMONS]
    handles = {os.pidfd_open(process.pid): process for process in daemons}
    names = {fd: process.name() for fd, process in handles.items()}
    while True:
        readable, _, _ = select.select([sys.stdin, *handles], [], [])
        ended = [names[fd] for fd in readable if fd in handles]
        if ended:
            _say(f"ended {' '.join(ended)}")
            return 1
        if sys.stdin in readable and not os.read(sys.stdin.fileno(), 4096):
            return 0


def keep_logs(folder: Path, logs: Path) -> None:
    """Copy what Ray wrote about its daemons and workers; the session's other files are of no use afterwards."""
    source = folder / "session_latest" / "logs"
    if not source.is_dir():
        return
    logs.mkdir(parents=True, exist_ok=True)
    for file in source.iterdir():
        if file.is_file() and file.stat().st_size:
            shutil.copyfile(file, logs / file.name)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
