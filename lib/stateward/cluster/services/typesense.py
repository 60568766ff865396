"""A Typesense server of one job: its own data, ports and key, proved by a real search, stopped by its own process id.

A second Typesense on a node needs a peering port of its own too, so two ports are taken. Ready means that a document
was written and a search found it: ``/health`` answers before the server takes writes. Checked with server 0.24.1.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stateward.cluster.services.scratch import scratch_folder
from stateward.errors import SystemFault, UserError

BINARY = "typesense-server"
_LOG_LINES = 25
_STOP_SECONDS = 10.0
_POLL_SECONDS = 0.1
_PROBE = "stateward_ready"

# The server has no way to end with the process that started it; the kernel has (prctl PR_SET_PDEATHSIG = 1).
_EXEC_WITH_PARENT = (
    "import ctypes, os, signal, sys; ctypes.CDLL(None).prctl(1, signal.SIGTERM, 0, 0, 0); "
    "os.getppid() == int(sys.argv[1]) or sys.exit(1); os.execv(sys.argv[2], sys.argv[2:])"
)


@dataclass(frozen=True, kw_only=True)
class TypesenseServer:
    """A server that has answered a search.

    `api_key` allows everything and is in `key_file` (mode 0600) for processes of this job on other nodes.
    """

    url: str
    api_key: str = field(repr=False)
    key_file: Path
    pid: int
    log: Path
    startup_seconds: float

    def environment(self, prefix: str = "") -> dict[str, str]:
        """What a tool server reads to use it; `prefix` stands before the names of the collections that it makes."""
        return {
            "TYPESENSE_URL": self.url,
            "TYPESENSE_API_KEY": self.api_key,
            **({"TYPESENSE_COLLECTION_PREFIX": prefix} if prefix else {}),
        }

    def collections(self) -> list[str]:
        """Names of the collections there are."""
        return [collection["name"] for collection in request(self.url, self.api_key, "GET", "/collections")]


def find_binary(configured: str = "") -> Path:
    """The configured binary, or the one on PATH.

    Raises:
        UserError: there is none, or it cannot be executed.
    """
    found = shutil.which(configured or BINARY)
    if found is None:
        raise UserError(
            f"no executable {configured or BINARY}",
            "it is not there, or not executable" if configured else "it is not on PATH",
            "install Typesense 0.24 or newer and name its binary, or leave Typesense out: the practice world then "
            "searches in its own process",
        )
    return Path(found)


@contextlib.contextmanager
def serve(
    folder: Path,
    *,
    log: Path,
    ports: Sequence[int] = (),
    address: str = "127.0.0.1",
    binary: str = "",
    startup_seconds: float = 60.0,
    environment: Mapping[str, str] | None = None,
) -> Iterator[TypesenseServer]:
    """Serve for the length of the block; the data are gone afterwards, also when this process or the server is killed.

    Args:
        folder: a folder of this job, shared by its nodes if they are to read the key. Data go to a private folder on
            this node instead, where memory maps and locks work.
        log: file that gets the server's output, appended.
        ports: two ports of the job's block, for the API and for peering; free loopback ones if empty.
        address: of this node's interface that the job's other nodes reach; loopback for one node.
        environment: variables for the server, added to this process's own.

    Raises:
        UserError: there is no binary.
        SystemFault("cluster"): the server died or did not answer a search within `startup_seconds`.
    """
    program = find_binary(binary)
    api_port, peering_port = ports or _free_ports(address)
    folder.mkdir(parents=True, exist_ok=True)
    log.parent.mkdir(parents=True, exist_ok=True)
    key, private = secrets.token_urlsafe(32), key_file(folder)
    _write_private(private, key)
    url = f"http://{address}:{api_port}"
    started = time.monotonic()
    try:
        with scratch_folder("sw-typesense-") as data, log.open("ab") as output:
            offset = output.tell()
            process = subprocess.Popen(
                [sys.executable, "-c", _EXEC_WITH_PARENT, str(os.getpid()), str(program)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=(data.hold,),
                start_new_session=True,
                # Not as arguments: every user of the node can read those.
                env={
                    **os.environ,
                    **(environment or {}),
                    "TYPESENSE_DATA_DIR": str(data.folder),
                    "TYPESENSE_API_KEY": key,
                    "TYPESENSE_API_ADDRESS": address,
                    "TYPESENSE_API_PORT": str(api_port),
                    "TYPESENSE_PEERING_ADDRESS": "127.0.0.1",
                    "TYPESENSE_PEERING_PORT": str(peering_port),
                },
            )
            try:
                _wait_until_ready(process, url, key, startup_seconds, log, offset)
                yield TypesenseServer(
                    url=url,
                    api_key=key,
                    key_file=private,
                    pid=process.pid,
                    log=log,
                    startup_seconds=time.monotonic() - started,
                )
            finally:
                _stop(process)
    finally:
        private.unlink(missing_ok=True)


def key_file(folder: Path) -> Path:
    """Where `serve` leaves the key for processes of this job on other nodes."""
    return folder / "typesense.key"


def request(url: str, key: str, method: str, path: str, body: Any = None) -> Any:
    """One request on a connection of its own, never through a proxy; raises URLError (HTTPError included)."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"X-TYPESENSE-API-KEY": key, "Content-Type": "application/json"}
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(urllib.request.Request(url + path, data, headers, method=method), timeout=10.0) as answer:
        return json.load(answer)


def _wait_until_ready(
    process: subprocess.Popen[bytes], url: str, key: str, seconds: float, log: Path, offset: int
) -> None:
    deadline, last = time.monotonic() + seconds, "it never listened"
    while time.monotonic() < deadline:
        try:
            # Waiting for the process to end is the pause between two tries.
            status = process.wait(_POLL_SECONDS)
        except subprocess.TimeoutExpired:
            pass
        else:
            how = f"was killed by {signal.Signals(-status).name}" if status < 0 else f"exited with status {status}"
            raise SystemFault("cluster", f"Typesense {how} before it was ready{_tail(log, offset)}")
        try:
            if _search_works(url, key):
                return
            last = "a search did not find what was written"
        except urllib.error.HTTPError as error:
            last = f"HTTP {error.code}: {error.read().decode(errors='replace')[:300]}"
            if error.code in (401, 403):
                raise SystemFault(
                    "cluster", f"{url} refuses this job's key, so it is another's server{_tail(log, offset)}"
                ) from error
        except OSError as error:
            last = f"{type(error).__name__}: {error}"
    raise SystemFault("cluster", f"Typesense was not ready after {seconds:g} s ({last}){_tail(log, offset)}")


def _search_works(url: str, key: str) -> bool:
    """Write a document, search for it, and leave nothing behind."""
    with contextlib.suppress(urllib.error.HTTPError):  # of a try that went half the way
        request(url, key, "DELETE", f"/collections/{_PROBE}")
    request(url, key, "POST", "/collections", {"name": _PROBE, "fields": [{"name": "text", "type": "string"}]})
    request(url, key, "POST", f"/collections/{_PROBE}/documents", {"text": "ready"})
    found = request(url, key, "GET", f"/collections/{_PROBE}/documents/search?q=ready&query_by=text")["found"]
    request(url, key, "DELETE", f"/collections/{_PROBE}")
    return bool(found == 1)


def _free_ports(address: str) -> tuple[int, int]:
    with socket.create_server((address, 0)) as one, socket.create_server((address, 0)) as two:
        return one.getsockname()[1], two.getsockname()[1]


def _write_private(path: Path, text: str) -> None:
    """Never readable by others, not for an instant: a file that is there already may have another mode."""
    path.unlink(missing_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)


def _tail(log: Path, offset: int) -> str:
    with log.open("rb") as file:
        file.seek(offset)
        lines = file.read().decode("utf-8", "replace").splitlines()[-_LOG_LINES:]
    return "; the last lines of its log:\n" + "\n".join(f"  | {line}" for line in lines) + f"\n  all of it: {log}"


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
