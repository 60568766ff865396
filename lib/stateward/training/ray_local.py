"""A private Ray on this machine, for a run outside a cluster allocation.

Nothing is shared with any other Ray: own folder, own port, own token, an explicit address, explicit resources. It ends
with the block that opened it, and by its own keeper process if that block's process is killed; and by the block if the
keeper is.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from stateward.cluster.ray_cluster import ADDRESS
from stateward.cluster.ray_command import one_vendor
from stateward.errors import SystemFault, UserError
from stateward.training.ray_keeper import keep_logs

#: A Unix socket path has at most 107 bytes; Ray appends up to 62 to its folder
#: (``/session_2026-01-01_00-00-00_000000_1234567/sockets/plasma_store``).
MAX_RAY_DIR = 45

#: Where a short folder is to be had when the usual one is long.
_SHORT = ("/tmp",)

#: A loopback address that Ray does not rewrite to the machine's own, as it does with 127.0.0.1.
_LOOPBACK = "127.0.0.2"


@dataclass(frozen=True, kw_only=True)
class RayNode:
    """How to reach a Ray: its address, and what a driver's environment must hold to be let in and to leave nothing."""

    address: str
    env: dict[str, str]


def ray_of_allocation(env: Mapping[str, str]) -> RayNode | None:
    """The Ray that `stateward.cluster.ray_cluster` started around this process; None outside an allocation's step."""
    address = env.get(ADDRESS)
    if address is None:
        return None
    return RayNode(address=address, env={name: env[name] for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH")})


@contextmanager
def private_ray(
    *, slots: int, cpus: int, object_store_mb: int, env: Mapping[str, str], logs: Path
) -> Iterator[RayNode]:
    """Start a one-node Ray with `slots` device slots and `cpus` logical CPUs; its processes inherit `env`.

    Ray's own logs go to `logs` when the block ends.

    Raises:
        SystemFault: the node did not start; the text has Ray's output.
        UserError: no folder is short enough for Ray's sockets.
    """
    folder = _ray_folder()
    token = folder / "token"
    token.touch(mode=0o600)
    token.write_text(secrets.token_hex(32))
    port = _free_port()
    # Verl leaves a lock file a checkpoint in the temporary folder and its engines leave sockets; here they go with Ray.
    temporary = folder / "tmp"
    temporary.mkdir()
    access = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token), "TMPDIR": str(temporary)}
    command = [
        *(sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--disable-usage-stats"),
        *(f"--node-ip-address={_LOOPBACK}", f"--port={port}", f"--temp-dir={folder}"),
        *(f"--num-cpus={cpus}", f"--num-gpus={slots}", f"--object-store-memory={object_store_mb << 20}"),
        # No dashboard, no autoscaler, no log forwarding. The client server cannot be refused; its default port 10001
        # is one a machine, so it gets another, and the keeper ends it.
        *("--include-dashboard=false", "--no-monitor", "--include-log-monitor=false"),
        f"--ray-client-server-port={_free_port()}",
    ]
    spec = folder / "keeper.json"
    spec.write_text(json.dumps({"command": command, "folder": str(folder), "logs": str(logs)}))
    keeper = subprocess.Popen(
        [sys.executable, "-m", "stateward.training.ray_keeper", str(spec)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**one_vendor(os.environ), **env, **access, **_QUIET},
    )
    assert keeper.stdin is not None
    assert keeper.stdout is not None
    try:
        answer = keeper.stdout.readline().strip()
        if answer != "ready":
            raise SystemFault("cluster", f"the private Ray did not start: {answer or 'its keeper ended'}")
        yield RayNode(address=f"{_LOOPBACK}:{port}", env=access)
    finally:
        keeper.stdin.close()
        if keeper.wait() < 0:  # killed: it could not clean up
            _stop_strays(token)
            keep_logs(folder, logs)
            shutil.rmtree(folder, ignore_errors=True)


def _stop_strays(token: Path) -> None:
    """End every process that has the path of this Ray's token in its environment; no other Ray has the same."""
    mark = f"RAY_AUTH_TOKEN_PATH={token}".encode()

    def strays() -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter():
            try:
                if mark in Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0"):
                    found.append(process)
            except OSError:
                continue  # it ended, or it is someone else's
        return found

    while left := strays():  # again: one that is ending may have started another
        for process in left:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(left, timeout=5)


#: No idle workers in advance, each of which would import Ray for nothing; no metrics for a dashboard that is off.
_QUIET = {
    "RAY_enable_worker_prestart": "0",
    "RAY_prestart_worker_first_driver": "0",
    "RAY_enable_metrics_collection": "0",
    "RAY_worker_niceness": "0",  # Ray gives its workers 15, and then everything else on the machine goes first
    "RAY_DEDUP_LOGS": "0",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
}


def _ray_folder() -> Path:
    for base in (tempfile.gettempdir(), *_SHORT):
        # mkdtemp adds "/sw-" and eight letters.
        if len(os.fsencode(base)) + 12 <= MAX_RAY_DIR:
            return Path(tempfile.mkdtemp(prefix="sw-", dir=base))
    raise UserError(
        f"the temporary folder {tempfile.gettempdir()} is too long for Ray",
        f"its sockets lie below it and Linux allows 107 bytes; the folder may have {MAX_RAY_DIR - 12}",
        "set TMPDIR to a short path such as /tmp",
    )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port
