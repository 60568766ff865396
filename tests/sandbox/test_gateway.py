"""The gateway, driven by OpenEnv's own client."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from stateward.sandbox import SandboxLimits
from stateward.sandbox.serve import serve

HERE = Path(__file__).parent
DATASET = HERE.parents[1] / "lib" / "stateward" / "practice" / "dataset"
UID = "orders_refund.py:test_refund_small_clock"

pytest.importorskip("openenv")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def gateway() -> Iterator[tuple[str, subprocess.Popen[str]]]:
    command = [sys.executable, "-m", "stateward.sandbox.serve", str(DATASET / "orders_train.yaml"), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"on (http://\S+)", line)
        assert found, line
        yield found[1], process
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=60)


@pytest.fixture(scope="module")
def seen(gateway: tuple[str, subprocess.Popen[str]]) -> dict[str, Any]:
    golden = yaml.safe_load((HERE.parent / "practice" / "golden" / "orders.yaml").read_text())[UID]
    calls = [[name, arguments] for step in golden for name, arguments in step.items() if name != "say"]
    command = [sys.executable, str(HERE / "openenv_client.py"), gateway[0], UID, json.dumps(calls)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert result.returncode == 0, result.stderr
    answer: dict[str, Any] = json.loads(result.stdout)
    return answer


def test_reset_gives_the_task(seen: dict[str, Any]) -> None:
    first = seen["golden"]["first"]
    assert first["task"] == UID
    assert first["query"].startswith("Please refund order ORD-1146")
    assert "Noah Olsen" in first["user_context"]
    assert {tool["function"]["name"] for tool in first["tools"]} >= {"refund_order"}
    assert seen["golden"]["done_first"] is False


def test_the_golden_calls_pass_and_doing_nothing_fails(seen: dict[str, Any]) -> None:
    golden, nothing = seen["golden"], seen["nothing"]
    assert golden["errors"] == [False] * len(golden["errors"])
    assert (golden["done"], golden["reward"], golden["last"]["outcome"]) == (True, 1.0, "pass")
    assert (nothing["done"], nothing["reward"], nothing["last"]["outcome"]) == (True, 0.0, "fail")
    assert nothing["last"]["failure"]["file"].endswith("orders_refund.py")
    # Two sessions at the same time, on the same task, do not see each other's state.
    assert golden["final"]["final_state"] != nothing["final"]["final_state"]
    assert golden["state"]["initial_state_hash"] == nothing["state"]["initial_state_hash"]
    assert golden["state"]["episode_id"] == "mine"


def test_an_ended_episode_and_an_unknown_task_are_refused(seen: dict[str, Any]) -> None:
    assert "no episode under way" in seen["golden"]["refused"]
    assert "no_such.py:test" in seen["mistake"]


def test_the_gateway_leaves_nothing_when_told_to_end(
    gateway: tuple[str, subprocess.Popen[str]],
    seen: dict[str, Any],
    descendants: Callable[[int], set[int]],
    alive: Callable[[int], bool],
) -> None:
    process = gateway[1]
    below = descendants(process.pid)
    assert below
    process.send_signal(signal.SIGTERM)
    process.wait(timeout=60)
    assert not [pid for pid in below if alive(pid)]


async def test_an_idle_session_gives_its_place_back_with_its_world(monkeypatch: pytest.MonkeyPatch) -> None:
    """What openenv is told; that it then ends idle sessions is its own, and takes minutes to see."""
    from openenv.core.env_server import http_server

    told: dict[str, Any] = {}

    class Told(Exception):
        pass

    def create(*_: Any, **options: Any) -> None:
        told.update(options)
        raise Told

    monkeypatch.setattr(http_server, "create_fastapi_app", create)
    with pytest.raises(Told):
        await serve([], "127.0.0.1", 0, 3)
    config = told["concurrency_config"]
    assert (config.max_concurrent_envs, config.session_timeout) == (3, SandboxLimits().idle_seconds)
