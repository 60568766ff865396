"""The suite's episode as Verl's agent loop, and groups of them in Verl's worker."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from stateward.outcome import Outcome
from stateward.training.groups import SessionReport
from stateward.training.rollout import EpisodeOrder, TrainedEpisode, VoidEpisode

pytestmark = pytest.mark.verl

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


def output(report: SessionReport = REPORT) -> Any:
    from verl.experimental.agent_loop.agent_loop import AgentLoopMetrics, AgentLoopOutput

    extra = {"min_global_steps": 6, "max_global_steps": 7, "reward_extra_info": {}, "report": report}
    return AgentLoopOutput(
        prompt_ids=[1, 2, 3],
        response_ids=[4, 5],
        response_mask=[1, 0],
        response_logprobs=[-0.5, 0.0],
        reward_score=report.reward,
        num_turns=1,
        metrics=AgentLoopMetrics(),
        extra_fields=extra,
    )


FAILED = replace(REPORT, outcome=Outcome.FAIL, reward=0.0)
VOID = SessionReport(outcome=Outcome.VOID, reward=math.nan, voids=("init",) * 3)


@dataclass
class Worker:
    """Our worker with given results of its episodes; `calls` of Verl's, and what was `stored`."""

    made: Any
    calls: list[dict[str, Any]] = field(default_factory=list)
    stored: list[dict[str, Any]] = field(default_factory=list)


def worker(results: list[Any], monkeypatch: pytest.MonkeyPatch) -> Worker:
    from stateward.training import queue
    from stateward.training.manager import EpisodeWorker

    found = Worker(object.__new__(EpisodeWorker))

    async def run(self: Any, sampling: Any, trajectory: Any, **call: Any) -> Any:
        found.calls.append(call)
        result = results[call["session_id"]]
        if isinstance(result, Exception):
            raise result
        return await self._agent_loop_postprocess(output(result), False, **call)

    async def put(**what: Any) -> None:
        found.stored.append(what)

    monkeypatch.setattr(EpisodeWorker, "_run_agent_loop", run)
    monkeypatch.setattr(queue.transfer_queue, "async_kv_batch_put", put)
    return found


def order(size: int, filtering: bool = True) -> Any:
    from stateward.training.manager import GroupOrder

    return GroupOrder(key="s7g0", uid="f.py:t", step=7, size=size, first_index=8, filtering=filtering)


async def test_a_group_is_run_by_our_loop_under_further_trial_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    found = worker([REPORT] * 3, monkeypatch)
    group = await found.made.run_group(order(3))
    assert (group.key, group.uid, group.sessions) == ("s7g0", "f.py:t", (REPORT,) * 3)
    assert [(c["session_id"], c["index"], c["task"], c["uid"], c["global_steps"]) for c in found.calls] == [
        (i, 8 + i, "f.py:t", "s7g0", 7) for i in range(3)
    ]
    assert {c["agent_name"] for c in found.calls} == {"stateward"}


async def test_a_void_episode_is_reported_as_void_and_never_with_a_reward(monkeypatch: pytest.MonkeyPatch) -> None:
    found = worker([REPORT, VoidEpisode("init", "it broke", VOID), FAILED], monkeypatch)
    group = await found.made.run_group(order(3, filtering=False))
    assert [s.outcome for s in group.sessions] == [Outcome.PASS, Outcome.VOID, Outcome.FAIL]
    assert math.isnan(group.sessions[1].reward)
    assert group.attempts == 5
    assert found.stored == []


async def test_what_is_no_fault_of_an_episode_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    found = worker([REPORT, KeyError("a bug of ours")], monkeypatch)
    with pytest.raises(KeyError, match="a bug of ours"):
        await found.made.run_group(order(2))
    assert found.stored == []


async def test_a_group_goes_into_the_queue_in_one_message(monkeypatch: pytest.MonkeyPatch) -> None:
    found = worker([REPORT, FAILED], monkeypatch)
    await found.made.run_group(order(2))
    (put,) = found.stored
    assert (put["keys"], put["partition_id"]) == (["s7g0_0_0", "s7g0_1_0"], "train")
    assert put["tags"][1] == {
        "status": "success",
        "prompt_len": 3,
        "response_len": 2,
        "seq_len": 5,
        "global_steps": 7,
        "min_global_steps": 6,
        "max_global_steps": 7,
    }
    fields = put["fields"]
    assert [list(row) for row in fields["input_ids"]] == [[1, 2, 3, 4, 5]] * 2
    # Of one dimension and without images, whatever the model could see: no processor is asked.
    assert [list(row) for row in fields["position_ids"]] == [[0, 1, 2, 3, 4]] * 2
    assert list(fields["multi_modal_inputs"]) == [{}] * 2
    assert [list(row) for row in fields["loss_mask"]] == [[1, 0]] * 2
    assert [list(row) for row in fields["rm_scores"]] == [[0.0, 1.0], [0.0, 0.0]]
    assert [list(row) for row in fields["rollout_log_probs"]] == [[-0.5, 0.0]] * 2
    assert list(fields["uid"]) == ["s7g0"] * 2
    assert all("report" not in extra for extra in fields["extra_fields"]), "it would travel with the tensors"


@pytest.mark.parametrize("filtering", [True, False])
async def test_a_group_without_a_signal_is_stored_only_if_the_step_trains_on_it(
    filtering: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = worker([FAILED, FAILED], monkeypatch)
    await found.made.run_group(order(2, filtering))
    assert len(found.stored) == (not filtering)


async def test_a_row_is_what_verl_makes_of_the_same_episode(monkeypatch: pytest.MonkeyPatch) -> None:
    """Verl's own worker, whose rows its trainer was written for."""
    import torch

    from stateward.training.manager import VerlWorker

    found = worker([REPORT], monkeypatch)
    await found.made.run_group(order(1, filtering=False))

    async def nothing(*_: Any, **__: Any) -> None: ...

    class Plain(VerlWorker):  # type: ignore[misc]
        processor = None
        _compute_score = _compute_teacher_logprobs = nothing

    single = output()
    single.extra_fields.pop("report")
    await object.__new__(Plain)._agent_loop_postprocess(single, False, uid="s7g0", session_id=0, global_steps=7)
    ours, verls = found.stored
    assert {name: ours[name] for name in ("keys", "tags", "partition_id")} == {
        name: verls[name] for name in ("keys", "tags", "partition_id")
    }
    assert set(ours["fields"].keys()) == set(verls["fields"].keys())
    for name in sorted(ours["fields"].keys()):
        one, other = ours["fields"][name], verls["fields"][name]
        same = torch.equal(one, other) if isinstance(one, torch.Tensor) else list(one) == list(other)
        assert same, name
        assert getattr(one, "dtype", None) == getattr(other, "dtype", None), name
