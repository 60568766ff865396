"""API models as the policy: the whole command over real HTTP, coverage and its repair, and a leaderboard."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from stateward.evaluation.report import ReportOptions, compute, terminal
from stateward.evaluation.run import load_run
from stateward.practice import dataset_path
from stateward.store import read_records
from stateward.tasks import load_tasks

ROOT = Path(__file__).parents[2]
PRICES = ROOT / "configs" / "prices.yaml"
GOLDEN = ROOT / "tests" / "practice" / "golden" / "orders.yaml"
KEY = "secret-of-the-test"
RunJob = Callable[..., subprocess.CompletedProcess[str]]


@dataclass
class ChatServer:
    """A chat endpoint in this process that answers from the practice tasks' golden scripts, over real HTTP.

    Which script it follows it knows from the first question; where it stands in it, from the assistant messages so far.

    `scripts`: first question → steps. `requests`: every body that came. `refuse`: the status of requests with tools.
    """

    scripts: dict[str, list[dict[str, Any]]]
    requests: list[dict[str, Any]] = field(default_factory=list)
    refuse: int = 0
    url: str = ""

    def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        messages = body["messages"]
        question = next(m["content"] for m in messages if m["role"] == "user")
        said = sum(m["role"] == "assistant" for m in messages)
        steps = self.scripts.get(question, [{"say": "I cannot help. <DONE>"}])
        ((name, value),) = steps[said].items() if said < len(steps) else {"say": "That is done. <DONE>"}.items()
        message: dict[str, Any] = {"role": "assistant", "content": value if name == "say" else None}
        if name != "say":
            assert name in {tool["function"]["name"] for tool in body["tools"]}, "a call of a tool that was offered"
            function = {"name": name, "arguments": json.dumps(value)}
            message["tool_calls"] = [{"id": f"call_{said}", "type": "function", "function": function}]
        return {
            "model": body["model"],
            "choices": [{"index": 0, "message": message, "finish_reason": "stop" if name == "say" else "tool_calls"}],
            "usage": {
                "prompt_tokens": 100,
                "completion_tokens": 10,
                "prompt_tokens_details": {"cached_tokens": 60},
                "completion_tokens_details": {"reasoning_tokens": 4},
            },
        }


@contextmanager
def serving(scripts: dict[str, list[dict[str, Any]]]) -> Iterator[ChatServer]:
    """The server on a free port of the loopback interface, for the length of the block."""
    state = ChatServer(scripts)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            state.requests.append(body)
            status, answer = 200, {}
            if self.headers.get("Authorization") != f"Bearer {KEY}":
                status, answer = 401, {"error": {"message": "wrong key"}}
            elif state.refuse and "tools" in body:
                status, answer = state.refuse, {"error": {"message": "refused by the test"}}
            else:
                answer = state.answer(body)
            data = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    state.url = f"http://127.0.0.1:{server.server_port}/v1"
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture(scope="module")
def uids() -> list[str]:
    found: list[str] = yaml.safe_load((dataset_path() / "orders_benchmark.yaml").read_text())
    return found[::8][:4]


@pytest.fixture
def server(uids: list[str]) -> Iterator[ChatServer]:
    golden = yaml.safe_load(GOLDEN.read_text())
    tasks = load_tasks(dataset_path(), uids)
    # The last task has no script: the model fails it.
    with serving({task.query: golden[task.uid] for task in tasks[:-1]}) as state:
        yield state


class Command:
    """jobs/*.py over a configuration of its own."""

    def __init__(self, folder: Path, uids: list[str], server: ChatServer, run_job: RunJob) -> None:
        self.run_job = run_job
        config = yaml.safe_load((ROOT / "configs" / "practice.yaml").read_text())
        (folder / "tasks.yaml").write_text(yaml.safe_dump(uids))
        endpoint = {"base_url": server.url, "model": "gpt-4.1-mini", "api_key_env": "TEST_API_KEY", "max_retries": 0}
        config["tasks"]["benchmark"] = str(folder / "tasks.yaml")
        config["evaluate"] |= {"trials": 2, "max_attempts": 1}
        config["evaluate"]["endpoints"] = {
            "mini": endpoint,
            "fresh": {**endpoint, "model": "gpt-4.1", "extra": {"temperature": None, "reasoning_effort": "low"}},
            "third": {**endpoint, "model": "gpt-4.1-nano"},
        }
        self.run_dir = folder / "run"
        self.config = folder / "config.yaml"
        self.config.write_text(yaml.safe_dump(config))

    def evaluate(self, label: str, *more: str, key: str = KEY) -> subprocess.CompletedProcess[str]:
        """jobs/evaluate.py as a program."""
        command = [sys.executable, str(ROOT / "jobs" / "evaluate.py"), *self._arguments(label), *more]
        return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=self._environment(key))

    def refused(self, label: str, *more: str, key: str = KEY) -> subprocess.CompletedProcess[str]:
        """jobs/evaluate.py in this process, for calls that end before an episode."""
        return self.run_job("evaluate", *self._arguments(label), *more, env=self._environment(key))

    def _arguments(self, label: str) -> list[str]:
        return ["--config", str(self.config), "--run-dir", str(self.run_dir), "--label", label]

    def _environment(self, key: str) -> dict[str, str]:
        return {**os.environ, "TEST_API_KEY": key}


@pytest.fixture
def command(tmp_path: Path, uids: list[str], server: ChatServer, run_job: RunJob) -> Command:
    return Command(tmp_path, uids, server, run_job)


@pytest.mark.slow
def test_an_api_model_is_evaluated_with_tools(command: Command, server: ChatServer, uids: list[str]) -> None:
    done = command.evaluate("mini")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "8 of 8 trials stored: 6 passed, 2 failed, 0 void" in done.stdout
    run = load_run(command.run_dir / "eval" / "mini")
    assert run.scored
    assert run.plan.model == "gpt-4.1-mini"
    records = list(read_records(command.run_dir / "eval" / "mini"))
    used = records[0].usage["policy"]
    assert (used.prompt, used.cached, used.completion, used.reasoning) == tuple(
        used.requests * n for n in (100, 60, 10, 4)
    )
    assert any(record.tool_calls for record in records)
    assert "tools" not in server.requests[0], "one request proves key and model before any trial"
    body = server.requests.pop(1)
    server.requests[0] = body
    assert (body["model"], body["temperature"], body["top_p"]) == ("gpt-4.1-mini", 1.0, 1.0)
    assert body["tools"][0]["type"] == "function"
    # Each trial has its own seed, which the record carries, and each turn its own of it.
    asked = [record.seed + turn for record in records for turn in range(record.turns)]
    assert sorted(body["seed"] for body in server.requests) == sorted(asked)
    assert len({record.seed for record in records}) == 8
    stored = "".join(p.read_text() for p in command.run_dir.rglob("*.json"))
    assert KEY not in stored, "the key stays in the environment"
    (worker,) = (command.run_dir / "eval" / "mini" / "workers").glob("*.json")
    row = json.loads(worker.read_text())
    assert row["gpus"] == 0
    assert row["ended"] > row["time"]


@pytest.mark.slow
def test_only_missing_and_void_trials_run_again(command: Command, server: ChatServer) -> None:
    server.refuse = 400
    done = command.evaluate("mini")
    assert done.returncode == 1
    assert "8 trials are missing or void" in done.stdout
    listed = command.evaluate("mini", "--repair", "--dry-run")
    assert listed.returncode == 1
    assert len([line for line in listed.stdout.splitlines() if "#" in line]) == 8
    server.refuse = 0
    done = command.evaluate("mini", "--repair")
    assert done.returncode == 0, done.stdout + done.stderr
    stage = command.run_dir / "eval" / "mini"
    assert (stage / "DONE").is_file()
    assert load_run(stage).records.superseded == 8
    # A shard that is lost after the stage was done: the plain command believes the marker, --repair looks.
    for shard in (stage / "shards").glob("*.h5"):
        shard.unlink()
    assert "already done" in command.evaluate("mini").stdout
    server.requests.clear()
    done = command.evaluate("mini", "--repair")
    assert done.returncode == 0, done.stdout + done.stderr
    assert load_run(stage).scored
    assert server.requests
    server.requests.clear()
    assert command.evaluate("mini", "--repair").returncode == 0
    assert server.requests == [], "nothing is owed, so nothing runs"


def test_mistakes_say_what_to_do(command: Command) -> None:
    for done, text in (
        (command.refused("mini", key=""), "TEST_API_KEY is not set"),
        (command.refused("mini", "--repair"), "was not begun"),  # the mistake above wrote nothing
        (command.refused("mini", "--model", "somewhere"), "choose one"),
        (command.refused("mini", "evaluate.endpoints.mini.model=''"), "needs base_url and model"),
        (command.refused("mini", "evaluate.trials=0"), "evaluate.trials=0"),
    ):
        assert done.returncode == 2, done.stdout + done.stderr
        assert text in done.stderr
    wrong = command.refused("mini", key="another")
    assert wrong.returncode == 1
    assert "stopped by a system fault" in wrong.stderr
    assert "401" in wrong.stderr
    assert not list((command.run_dir / "eval" / "mini" / "shards").iterdir()), "no trial was spent on it"


@pytest.mark.slow
def test_a_leaderboard_of_three_api_models(command: Command, server: ChatServer) -> None:
    for label in ("mini", "fresh", "third"):
        assert command.evaluate(label).returncode == 0
    fresh = [body for body in server.requests if body["model"] == "gpt-4.1"]
    assert "temperature" not in fresh[0]
    assert fresh[0]["reasoning_effort"] == "low"
    text = terminal(compute(command.run_dir, ReportOptions(prices=PRICES, resamples=200)))
    board = text.split("\n\n")[0].splitlines()
    assert {line.split()[0] for line in board[3:]} == {"mini", "fresh", "third"}
    assert all("75.00 %" in line and "$" in line for line in board[3:])
    # Somebody may edit the package while this runs.
    options = ReportOptions(prices=PRICES, resamples=200, baseline="mini", allow=["commit"])
    fresh_one, third = compute(command.run_dir, options).comparisons
    assert "settings.sampling.temperature: 1.0 → the endpoint's own" in fresh_one.refused
    assert not third.refused
    assert third.tuned == "third"
