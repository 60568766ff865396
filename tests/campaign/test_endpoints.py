"""The endpoints that episodes need are asked before a model is loaded; with a real HTTP server."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from stateward.campaign.endpoints import check_endpoints
from stateward.config import EndpointConfig, EpisodeConfig
from stateward.errors import SystemFault
from stateward.policy.samplers.http import Retry

ONCE = Retry(attempts=1, deadline_seconds=20.0)


class Handler(BaseHTTPRequestHandler):
    status = 200

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        message = {"role": "assistant", "content": "ok"}
        body = {"choices": [{"message": message, "finish_reason": "stop"}], "model": asked["model"], "usage": {}}
        data = json.dumps(body).encode()
        self.send_response(self.server.status)  # type: ignore[attr-defined]
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        http.status = 200  # type: ignore[attr-defined]
        thread = threading.Thread(target=http.serve_forever, args=(0.05,))
        thread.start()
        yield http
        http.shutdown()
        thread.join()


def chat(url: str) -> EndpointConfig:
    return EndpointConfig(kind="chat", base_url=url, model="helper")


def test_each_endpoint_gives_one_completion(server: ThreadingHTTPServer) -> None:
    url = f"http://127.0.0.1:{server.server_port}/v1"
    lines = check_endpoints(EpisodeConfig(user=chat(url), judge=chat(url)), ONCE)
    assert [line.split(" answered")[0] for line in lines] == [f"{p}: helper at {url}" for p in ("user", "judge")]


def test_scripted_users_need_none() -> None:
    assert check_endpoints(EpisodeConfig()) == []


def test_one_that_refuses_or_is_down_is_a_fault_of_its_kind(server: ThreadingHTTPServer) -> None:
    url = f"http://127.0.0.1:{server.server_port}/v1"
    server.status = 401  # type: ignore[attr-defined]
    with pytest.raises(SystemFault, match=r"judge: .*401"):
        check_endpoints(EpisodeConfig(judge=chat(url)), ONCE)
    with pytest.raises(SystemFault, match="user: "):
        check_endpoints(EpisodeConfig(user=chat("http://127.0.0.1:1/v1")), ONCE)


def test_train_preflight_asks_and_ends(
    run_job: Callable[..., subprocess.CompletedProcess[str]], server: ThreadingHTTPServer
) -> None:
    url = f"http://127.0.0.1:{server.server_port}/v1"
    overrides = ["episode.user.kind=chat", f"episode.user.base_url={url}", "episode.user.model=helper"]
    done = run_job("train", "--config", "configs/practice.yaml", "--preflight", *overrides)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"user: helper at {url} answered in ")
