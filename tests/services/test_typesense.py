from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
import textwrap
import time
import urllib.error
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from stateward.cluster.services.typesense import TypesenseServer, find_binary, request, serve
from stateward.errors import SystemFault, UserError
from stateward.sandbox import Sandbox
from stateward.tasks import load_tasks

PRACTICE = Path(__file__).parents[2] / "lib" / "stateward" / "practice" / "dataset"
typesense = pytest.mark.typesense


@pytest.fixture(scope="module")
def server(typesense_binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TypesenseServer]:
    folder = tmp_path_factory.mktemp("job")
    with serve(folder, log=folder / "log", binary=str(typesense_binary)) as running:
        yield running


def alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


@typesense
def test_ready_means_that_a_search_works_and_leaves_nothing(server: TypesenseServer) -> None:
    assert server.collections() == []
    schema = {"name": "a", "fields": [{"name": "text", "type": "string"}]}
    request(server.url, server.api_key, "POST", "/collections", schema)
    request(server.url, server.api_key, "POST", "/collections/a/documents", {"text": "of renewals"})
    path = "/collections/a/documents/search?q=renewals&query_by=text"
    assert request(server.url, server.api_key, "GET", path)["found"] == 1
    request(server.url, server.api_key, "DELETE", "/collections/a")
    assert server.startup_seconds < 60


@typesense
def test_the_key_is_this_jobs_and_nobody_else_can_read_it(server: TypesenseServer) -> None:
    assert server.key_file.read_text() == server.api_key
    assert stat.S_IMODE(server.key_file.stat().st_mode) == 0o600
    assert server.api_key not in repr(server)
    assert server.api_key.encode() not in Path(f"/proc/{server.pid}/cmdline").read_bytes()
    with pytest.raises(urllib.error.HTTPError) as refused:
        request(server.url, "Fake", "GET", "/collections")
    assert refused.value.code == 401


@typesense
def test_two_on_a_node_are_apart_and_each_stops_by_its_own_pid(
    server: TypesenseServer, typesense_binary: Path, tmp_path: Path
) -> None:
    with serve(tmp_path, log=tmp_path / "log", binary=str(typesense_binary)) as second:
        assert (second.url, second.api_key) != (server.url, server.api_key)
        schema = {"name": "own", "fields": [{"name": "text", "type": "string"}]}
        request(second.url, second.api_key, "POST", "/collections", schema)
        assert second.collections() == ["own"]
        assert server.collections() == []
    assert not alive(second.pid)
    assert not (tmp_path / "typesense.key").exists()
    assert server.collections() == []


@typesense
def test_a_port_that_is_taken_ends_the_wait_at_once(
    server: TypesenseServer, typesense_binary: Path, tmp_path: Path
) -> None:
    port = int(server.url.rpartition(":")[2])
    with socket.create_server(("127.0.0.1", 0)) as free:
        peering = free.getsockname()[1]
    began = time.monotonic()
    serving = serve(tmp_path, log=tmp_path / "log", binary=str(typesense_binary), ports=(port, peering))
    with pytest.raises(SystemFault, match=r"log:") as fault, serving:
        pass
    assert fault.value.kind == "cluster"
    assert time.monotonic() - began < 50
    assert server.collections() == []


@typesense
def test_it_ends_with_the_process_that_started_it(typesense_binary: Path, tmp_path: Path) -> None:
    code = f"""
        import sys
        from pathlib import Path
        from stateward.cluster.services.typesense import serve
        folder = Path({str(tmp_path)!r})
        with serve(folder, log=folder / "log", binary={str(typesense_binary)!r}) as server:
            print(server.pid, flush=True)
            sys.stdin.read()
    """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as client:
        assert client.stdout is not None
        pid = int(client.stdout.readline())
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        (data,) = [Path(os.fsdecode(v.partition(b"=")[2])) for v in variables if v.startswith(b"TYPESENSE_DATA_DIR=")]
        assert data.is_dir()
        client.send_signal(signal.SIGKILL)
    limit = time.monotonic() + 30
    while alive(pid) or data.exists():
        assert time.monotonic() < limit
        time.sleep(0.05)


@typesense
async def test_the_library_searches_it_and_leaves_no_collection(server: TypesenseServer) -> None:
    (task,) = load_tasks(PRACTICE, ["library_loans.py:test_renew_the_salt_road"])
    specs = tuple(replace(spec, env={**spec.env, **server.environment("job1_")}) for spec in task.servers)
    task = replace(task, servers=specs)
    async with Sandbox() as sandbox:
        async with await sandbox.open(task) as one, await sandbox.open(task) as other:
            assert one.init_result["library"]["policy_search"] == f"Typesense at {server.url}"
            # Indexed once by the snapshot, read by both of its worlds.
            (name,) = server.collections()
            assert name.startswith("job1_")
            for world in (one, other):
                found = await world.call("search_policy", {"query": "renewing loans"}, call_id="1")
                assert not found.is_error, found.text
                assert "renew" in found.text.lower()
        assert server.collections() == [name]
    assert server.collections() == []


@typesense
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_sandbox_whose_process_is_killed_leaves_no_collection(server: TypesenseServer, how: signal.Signals) -> None:
    code = f"""
        import asyncio, sys
        from dataclasses import replace
        from pathlib import Path
        from stateward.sandbox import Sandbox
        from stateward.tasks import load_tasks
        (task,) = load_tasks(Path({str(PRACTICE)!r}), ["library_loans.py:test_renew_the_salt_road"])
        env = {server.environment("job2_")!r}
        task = replace(task, servers=tuple(replace(spec, env={{**spec.env, **env}}) for spec in task.servers))
        async def main():
            async with Sandbox() as sandbox, await sandbox.open(task):
                print("open", flush=True)
                await asyncio.Event().wait()
        asyncio.run(main())
    """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as client:
        assert client.stdout is not None
        assert client.stdout.readline() == "open\n"
        assert [name.startswith("job2_") for name in server.collections()] == [True]
        client.send_signal(how)
    limit = time.monotonic() + 30
    while server.collections():
        assert time.monotonic() < limit
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("script", "cause"),
    [("echo cannot open the data directory; exit 3", "exited with status 3"), ("kill -9 $$", "was killed by SIGKILL")],
)
def test_a_server_that_dies_ends_the_wait_with_its_last_lines(tmp_path: Path, script: str, cause: str) -> None:
    binary = tmp_path / "typesense-server"
    binary.write_text(f"#!/bin/sh\necho first lines\n{script}\n")
    binary.chmod(0o755)
    began = time.monotonic()
    serving = serve(tmp_path / "job", log=tmp_path / "log", binary=str(binary), startup_seconds=300)
    with pytest.raises(SystemFault, match=cause) as fault, serving:
        pass
    assert "first lines" in str(fault.value)
    assert time.monotonic() - began < 60
    assert not (tmp_path / "job" / "typesense.key").exists()


def test_a_server_that_never_answers_is_stopped(tmp_path: Path) -> None:
    binary, pid_file = tmp_path / "typesense-server", tmp_path / "pid"
    binary.write_text(f"#!/bin/sh\necho $$ > {pid_file}\nexec sleep 3600\n")
    binary.chmod(0o755)
    serving = serve(tmp_path / "job", log=tmp_path / "log", binary=str(binary), startup_seconds=2.0)
    with pytest.raises(SystemFault, match=r"not ready after 2 s"), serving:
        pass
    assert not alive(int(pid_file.read_text()))


def test_a_server_of_somebody_else_on_the_port_is_told(tmp_path: Path) -> None:
    """The port answers, but not to this job's key."""
    binary = tmp_path / "typesense-server"
    code = """
        import http.server, os
        class Refuse(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                self.send_error(401)
            do_DELETE = do_GET = do_POST
            def log_message(self, *_): pass
        http.server.HTTPServer(("127.0.0.1", int(os.environ["TYPESENSE_API_PORT"])), Refuse).serve_forever()
    """
    binary.write_text(f"#!{sys.executable}\n" + textwrap.dedent(code))
    binary.chmod(0o755)
    serving = serve(tmp_path / "job", log=tmp_path / "log", binary=str(binary))
    with pytest.raises(SystemFault, match="refuses this job's key"), serving:
        pass


def test_no_binary_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="not on PATH"):
        find_binary()
    with pytest.raises(UserError, match="leave Typesense out"):
        find_binary("/no/such/typesense-server")
