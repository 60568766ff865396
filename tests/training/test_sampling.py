"""The sampler over Verl's client, and the client over several engines."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from stateward.config import SamplingConfig
from stateward.errors import SystemFault
from stateward.policy.samplers import verl as module
from stateward.policy.samplers.verl import VerlSampler
from stateward.training.engines import EngineClient
from stateward.training.ray_local import private_ray


def output(
    ids: list[int], *, reason: str = "completed", step: int | None = 3, logprobs: list[float] | None = None
) -> Any:
    given = [-0.5] * len(ids) if logprobs is None else logprobs
    fields = {"global_steps": step, "num_cached_tokens": 2}
    return SimpleNamespace(token_ids=ids, log_probs=given, stop_reason=reason, extra_fields=fields)


class Engine:
    """Answers in turn; an exception among the answers is raised."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.calls: list[dict[str, Any]] = []

    async def __call__(self, **call: Any) -> Any:
        self.calls.append(call)
        answer = self.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer


def sampler(engine: Any, **more: Any) -> VerlSampler:
    return VerlSampler(generate=engine, sampling=SamplingConfig(), stop_ids=frozenset({9}), request_id="r", **more)


async def test_a_turn() -> None:
    engine = Engine(output([4, 5, 9]))
    under_test = sampler(engine)
    sample = await under_test.sample([1, 2], max_tokens=8, seed=7)
    assert sample.ids == (4, 5, 9)
    assert sample.logprobs == (-0.5, -0.5, -0.5)
    assert sample.finish == "stop"
    assert (sample.usage.prompt, sample.usage.cached, sample.usage.completion) == (2, 2, 3)
    assert under_test.versions == {3}
    assert engine.calls[0]["prompt_ids"] == [1, 2]
    params = engine.calls[0]["sampling_params"]
    assert (params["seed"], params["max_tokens"], params["top_k"], params["top_p"]) == (7, 8, 20, 0.95)


@pytest.mark.parametrize(
    ("ids", "max_tokens", "finish"), [([4, 5], 2, "length"), ([4, 9], 2, "stop"), ([4, 5], 3, "stop")]
)
async def test_a_finished_turn_is_told_from_a_truncated_one(ids: list[int], max_tokens: int, finish: str) -> None:
    sample = await sampler(Engine(output(ids))).sample([1], max_tokens=max_tokens, seed=0)
    assert sample.finish == finish


async def test_an_engine_that_comes_back_gives_the_same_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    async def at_once(seconds: float) -> None:
        assert seconds > 0

    monkeypatch.setattr(module.asyncio, "sleep", at_once)
    engine = Engine(RuntimeError("gone"), RuntimeError("gone"), output([4, 9]))
    assert (await sampler(engine).sample([1], max_tokens=8, seed=7)).ids == (4, 9)
    assert [call["sampling_params"]["seed"] for call in engine.calls] == [7, 7, 7]
    with pytest.raises(SystemFault, match="RuntimeError: gone"):
        await sampler(Engine(*[RuntimeError("gone")] * 3)).sample([1], max_tokens=8, seed=7)


@pytest.mark.parametrize(
    "bad", [output([], reason="completed"), output([4], reason="aborted"), output([4, 5], logprobs=[-1.0])]
)
async def test_a_partial_answer_is_a_fault(bad: Any) -> None:
    with pytest.raises(SystemFault) as caught:
        await sampler(Engine(bad)).sample([1], max_tokens=8, seed=0)
    assert caught.value.kind == "sampler"


@pytest.mark.parametrize(("failures", "seconds"), [(0, 0.1), (1, 2.0)])
async def test_an_engine_that_stalls_is_a_fault_within_the_deadline(failures: int, seconds: float) -> None:
    ended = []

    async def stalled(**_: Any) -> Any:
        if len(ended) < failures:
            ended.append("failed")
            raise RuntimeError("gone")
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")

    with pytest.raises(SystemFault, match=f"no turn within {seconds:g} s") as caught:
        await sampler(stalled, deadline_seconds=seconds).sample([1], max_tokens=8, seed=0)
    assert caught.value.kind == "sampler"
    assert ended == ["failed"] * failures + ["cancelled"]


async def test_an_engines_own_time_out_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def at_once(seconds: float) -> None:
        assert seconds > 0

    monkeypatch.setattr(module.asyncio, "sleep", at_once)
    assert (await sampler(Engine(TimeoutError(), output([4, 9]))).sample([1], max_tokens=8, seed=7)).ids == (4, 9)
    with pytest.raises(SystemFault, match="the rollout engine: TimeoutError"):
        await sampler(Engine(*[TimeoutError()] * 3)).sample([1], max_tokens=8, seed=7)


async def test_cancelling_is_no_fault() -> None:
    with pytest.raises(asyncio.CancelledError):
        await sampler(Engine(asyncio.CancelledError())).sample([1], max_tokens=8, seed=0)


class Handle:
    """Stands for an actor handle of an engine."""

    def __init__(self, name: str) -> None:
        self.seen: list[dict[str, Any]] = []

        async def remote(**call: Any) -> str:
            self.seen.append(call)
            return name

        self.generate = SimpleNamespace(remote=remote)


async def test_an_episode_stays_with_its_engine_and_episodes_are_spread() -> None:
    handles = {name: Handle(name) for name in "abc"}
    client = EngineClient(handles)
    homes = {}
    for episode in range(12):
        turns = [await client.generate(request_id=f"e{episode}", prompt_ids=[1], sampling_params={}) for _ in range(3)]
        assert len(set(turns)) == 1
        homes[episode] = turns[0]
    assert sorted(list(homes.values()).count(name) for name in "abc") == [4, 4, 4]
    ids = [call["request_id"] for handle in handles.values() for call in handle.seen]
    assert len(ids) == len(set(ids)) == 36  # each turn is a request of its own to vLLM


async def test_an_engine_whose_episodes_ended_takes_the_next_ones() -> None:
    client = EngineClient({name: Handle(name) for name in "ab"})
    homes = {f"e{i}": await client.generate(request_id=f"e{i}", prompt_ids=[1], sampling_params={}) for i in range(4)}
    for episode, home in homes.items():
        if home == "a":
            client.forget(episode)
    for i in (10, 11):
        assert await client.generate(request_id=f"e{i}", prompt_ids=[1], sampling_params={}) == "a"


SLOW = """
import asyncio
from stateward.training.engines import EngineClient

@ray.remote(num_cpus=0)
class Engine:
    def __init__(self):
        self.begun, self.ended = asyncio.Event(), asyncio.Event()
    async def generate(self, **call):
        self.begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.ended.set()
    async def until_begun(self):
        await self.begun.wait()
    async def until_ended(self):
        await self.ended.wait()

async def main():
    engine = Engine.remote()
    client = EngineClient({"a": engine})
    turn = asyncio.create_task(client.generate(request_id="e", prompt_ids=[1], sampling_params={}))
    await engine.until_begun.remote()
    turn.cancel()
    await asyncio.gather(turn, return_exceptions=True)
    print("cancelled:", turn.cancelled())
    await asyncio.wait_for(engine.until_ended.remote(), 60)

asyncio.run(main())
"""


@pytest.mark.engines
@pytest.mark.timeout(600)
def test_a_turn_that_nobody_waits_for_any_more_ends_in_the_engine(tmp_path: Path) -> None:
    """An engine is put to sleep when its requests are done: one that hangs would hold the whole step."""
    with private_ray(slots=1, cpus=2, object_store_mb=100, env={}, logs=tmp_path / "logs") as node:
        start = f"import ray; ray.init(address={node.address!r}, log_to_driver=False, configure_logging=False)\n"
        env = {**os.environ, **node.env}
        done = subprocess.run([sys.executable, "-c", start + SLOW], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "cancelled: True\n"


def test_no_engine_is_an_error() -> None:
    with pytest.raises(ValueError, match="no rollout engine"):
        EngineClient({})
