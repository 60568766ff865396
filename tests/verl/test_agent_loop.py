"""The suite's episode as Verl's agent loop, and groups of them in Verl's worker."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from stateward.outcome import Outcome
from stateward.training.groups import SessionReport
from stateward.training.rollout import EpisodeOrder, TrainedEpisode, VoidEpisode

pytestmark = pytest.mark.engines

pytest.importorskip("verl")

REPORT = SessionReport(outcome=Outcome.PASS, reward=1.0, turns=3, seconds={"sample": 2.0, "tools": 0.5, "grade": 0.1})
EPISODE = TrainedEpisode(
    prompt_ids=[1, 2],
    response_ids=[3, 4, 5],
    response_mask=[1, 0, 1],
    response_logprobs=[-0.1, 0.0, -0.2],
    reward=1.0,
    versions=(6, 7),
    report=REPORT,
)


class Service:
    def __init__(self, result: TrainedEpisode | Exception) -> None:
        self.result, self.orders = result, []  # type: ignore[var-annotated]

    async def run(self, order: EpisodeOrder, engines: Any) -> TrainedEpisode:
        self.orders.append((order, engines))
        if isinstance(self.result, Exception):
            raise self.result
        return self.result


def loop(service: Service) -> Any:
    from stateward.training.agent_loop import EpisodeLoop

    made = EpisodeLoop(settings="s", server_manager="engines", tokenizer=None, tools=[])

    async def given() -> Service:
        return service

    made.service = given  # type: ignore[method-assign, assignment]
    return made


async def test_what_verl_is_given() -> None:
    service = Service(EPISODE)
    output = await loop(service).run({"temperature": 0.3}, task="f.py:t", index="5", global_steps="7", uid="g0")
    assert service.orders == [(EpisodeOrder(uid="f.py:t", step=7, index=5), "engines")]
    assert (output.prompt_ids, output.response_ids, output.response_mask) == ([1, 2], [3, 4, 5], [1, 0, 1])
    assert output.response_logprobs == [-0.1, 0.0, -0.2]
    assert output.reward_score == 1.0, "without it Verl would ask a reward worker"
    assert output.num_turns == 3
    metrics = output.metrics
    assert (metrics.generate_sequences, metrics.tool_calls, metrics.compute_score) == (2.0, 0.5, 0.1)
    extra = output.extra_fields
    assert (extra["min_global_steps"], extra["max_global_steps"], extra["report"]) == (6, 7, REPORT)


async def test_the_service_of_a_process_is_opened_once_and_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    from stateward.training import agent_loop

    opened: list[Path] = []
    closed: list[str] = []

    class Opened:
        async def close(self) -> None:
            closed.append("closed")

    async def open_service(settings: Path) -> Any:
        opened.append(settings)
        return Opened()

    monkeypatch.setattr(agent_loop.EpisodeService, "open", open_service)
    first = await agent_loop.episode_service("a")
    assert await agent_loop.episode_service("a") is first
    assert opened == [Path("a")]
    await agent_loop.close_services()
    assert closed == ["closed"]
    await agent_loop.close_services()
    assert closed == ["closed"]


def worker(results: list[Any], monkeypatch: pytest.MonkeyPatch) -> tuple[Any, list[dict[str, Any]]]:
    from stateward.training.manager import EpisodeWorker

    calls: list[dict[str, Any]] = []

    async def run(self: Any, sampling: Any, trajectory: Any, **call: Any) -> SessionReport:
        calls.append(call)
        result = results[call["session_id"]]
        if isinstance(result, Exception):
            raise result
        report: SessionReport = result
        return report

    monkeypatch.setattr(EpisodeWorker, "_run_agent_loop", run)
    return object.__new__(EpisodeWorker), calls


def order(size: int) -> Any:
    from stateward.training.manager import GroupOrder

    return GroupOrder(key="s7g0", uid="f.py:t", step=7, size=size, first_index=8)


async def test_a_group_is_run_by_our_loop_under_further_trial_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    made, calls = worker([REPORT] * 3, monkeypatch)
    group = await made.run_group(order(3))
    assert (group.key, group.uid, group.sessions) == ("s7g0", "f.py:t", (REPORT,) * 3)
    assert [(c["session_id"], c["index"], c["task"], c["uid"], c["global_steps"]) for c in calls] == [
        (i, 8 + i, "f.py:t", "s7g0", 7) for i in range(3)
    ]
    assert {c["agent_name"] for c in calls} == {"stateward"}


async def test_a_void_episode_is_reported_as_void_and_never_with_a_reward(monkeypatch: pytest.MonkeyPatch) -> None:
    void = SessionReport(outcome=Outcome.VOID, reward=math.nan, voids=("init",) * 3)
    made, _ = worker([REPORT, VoidEpisode("init", "it broke", void), REPORT], monkeypatch)
    group = await made.run_group(order(3))
    assert [s.outcome for s in group.sessions] == [Outcome.PASS, Outcome.VOID, Outcome.PASS]
    assert math.isnan(group.sessions[1].reward)
    assert group.attempts == 5


async def test_what_is_no_fault_of_an_episode_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    made, _ = worker([REPORT, KeyError("a bug of ours")], monkeypatch)
    with pytest.raises(KeyError, match="a bug of ours"):
        await made.run_group(order(2))


async def test_the_report_goes_to_the_driver_and_the_episode_into_the_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    from stateward.training.manager import EpisodeWorker, VerlWorker

    stored: list[Any] = []

    async def put(self: Any, output: Any, validate: bool, **kwargs: Any) -> None:
        stored.append((output, kwargs["uid"]))

    monkeypatch.setattr(VerlWorker, "_agent_loop_postprocess", put)
    output = await loop(Service(EPISODE)).run({}, task="f.py:t", index=0, global_steps=7)
    made = object.__new__(EpisodeWorker)
    assert await made._agent_loop_postprocess(output, False, uid="g0") == REPORT
    assert stored == [(output, "g0")]
    assert "report" not in output.extra_fields, "it would travel with the tensors"
