"""One training at a time in a run directory: a second would set aside the checkpoint that the first is saving."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from stateward.errors import SystemFault, UserError
from stateward.store import lock


@contextmanager
def sole_run(path: Path) -> Iterator[None]:
    """Hold the lock file `path`, which says who holds it. Where the file system has no locks, that is printed.

    Raises:
        UserError: another training holds it.
        SystemFault: an earlier start of this very job does; a lost node's locks outlive it for a minute or two.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    job = os.environ.get("SLURM_JOB_ID", "")
    with open(path, "a+", encoding="utf-8") as file:
        try:
            missing = lock.take(file)
        except BlockingIOError:
            file.seek(0)
            raise _held(path, file.read(), job) from None
        if missing:
            print(
                f"train: {path}: this file system has no locks ({missing}); take care that no second job trains here",
                flush=True,
            )
        file.truncate(0)
        json.dump({"host": socket.gethostname(), "pid": os.getpid(), "job": job}, file)
        file.flush()
        yield


def _held(path: Path, text: str, job: str) -> UserError | SystemFault:
    holder: dict[str, Any] = json.loads(text) if text else {}
    who = f"process {holder.get('pid', '?')} on {holder.get('host', '?')}"
    if holder.get("job"):
        who += f", job {holder['job']}"
    if job and holder.get("job") == job:
        return SystemFault("cluster", f"{path} is still held by an earlier start of this job: {who}")
    return UserError(
        f"{path} is held by {who}",
        "it trains in this run directory; two would take each other's checkpoints",
        "wait for it to end, end it, or use another run directory",
    )
