"""One step from outcomes to advantages: our collector, then Verl's own estimator with the switches that we give it,
against a ten-line reference in numpy, on random outcomes with voids that finish in random order.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stateward.config import load_config
from stateward.outcome import Outcome
from stateward.training.groups import GroupReport, SessionReport, StepGroups, StepStopped, trains
from stateward.training.plan import plan_training

pytestmark = pytest.mark.verl

torch = pytest.importorskip("torch")
pytest.importorskip("verl")

PASS, FAIL, VOID = Outcome.PASS, Outcome.FAIL, Outcome.VOID
REWARD = {PASS: 1.0, FAIL: 0.0, VOID: np.nan}
SIZE = 4
ROOT = Path(__file__).parents[2]


def reference(stream: list[list[Outcome]], wanted: int, budget: int, by_std: bool) -> dict[str, float] | None:
    """Key of an episode → its advantage; None if the budget does not suffice."""
    r = np.array([[REWARD[o] for o in outcomes] for outcomes in stream[:budget]])
    kept = np.flatnonzero(r.std(axis=1) > 0)[:wanted]  # NaN, that is a void anywhere, compares false
    if len(kept) < wanted:
        return None
    a = r[kept] - r[kept].mean(axis=1, keepdims=True)
    if by_std:
        a /= r[kept].std(axis=1, ddof=1, keepdims=True) + 1e-6
    return {f"s000007g{g:05d}_{i}_0": a[row, i] for row, g in enumerate(kept) for i in range(SIZE)}


class Queue:
    """Stands for the transfer queue: what episodes put there under their keys."""

    def __init__(self) -> None:
        self.rewards: dict[str, float] = {}

    def kv_list(self, partition: str) -> dict[str, dict[str, Any]]:
        return {partition: {key: {"status": "success"} for key in self.rewards}}


class Manager:
    """Runs the groups of a stream; they finish in random order."""

    def __init__(self, stream: list[list[Outcome]], queue: Queue, seed: int) -> None:
        self.stream, self.queue, self.random = stream, queue, random.Random(seed)
        self.running: list[tuple[Any, list[Outcome]]] = []
        self.orders: list[Any] = []

    def submit(self, order: Any) -> None:
        self.running.append((order, self.stream[len(self.orders)]))
        self.orders.append(order)

    def next_report(self, progress: Callable[[], None]) -> GroupReport:
        order, outcomes = self.running.pop(self.random.randrange(len(self.running)))
        if trains(outcomes, order.filtering):
            for number, outcome in enumerate(outcomes):
                self.queue.rewards[f"{order.key}_{number}_0"] = REWARD[outcome]
        sessions = tuple(SessionReport(outcome=o, reward=REWARD[o], voids=("sandbox",) * (o is VOID)) for o in outcomes)
        return GroupReport(key=order.key, uid=order.uid, sessions=sessions)


def collector(queue: Queue, manager: Manager, wanted: int, rounds: int, monkeypatch: Any, tasks: int = 5) -> Any:
    from stateward.training import collector as module

    monkeypatch.setattr(module.transfer_queue, "kv_list", queue.kv_list)
    names = (f"t{i % tasks}" for i in range(10_000))
    finished: list[None] = []
    found = module.GroupCollector(
        next_task=lambda: next(names),
        new_step=lambda: StepGroups(wanted=wanted, group_size=SIZE, max_rounds=rounds, max_void_share=1.0),
        progress=lambda: finished.append(None),
    )
    found.manager = manager  # type: ignore[assignment]
    return found


#: Verl's algorithm section for each position of our switch.
_algorithms: dict[bool, Any] = {}


def verls_advantages(keys: list[str], rewards: dict[str, float], by_std: bool) -> dict[str, float]:
    """By the function that the trainer calls, told as `overrides` tells it; every token of an episode has the same."""
    from hydra import compose, initialize_config_module
    from verl.trainer.ppo.v1.utils import compute_advantage_for_multi_trajectories

    from verl import DataProto

    if by_std not in _algorithms:
        config = load_config(ROOT / "configs" / "q38_full.yaml", [f"train.normalize_by_std={by_std}"])
        overrides = [o.render() for o in plan_training(config, "/r", Path("/m")).overrides]
        with initialize_config_module("verl.trainer.config", version_base=None):
            _algorithms[by_std] = compose("ppo_trainer", overrides=overrides).algorithm
    algorithm = _algorithms[by_std]
    lengths = [1 + i % 3 for i in range(len(keys))]
    mask = torch.tensor([[float(t < n) for t in range(3)] for n in lengths])
    scores = torch.zeros(len(keys), 3)
    for row, (key, n) in enumerate(zip(keys, lengths, strict=True)):
        scores[row, n - 1] = rewards[key]
    groups = np.array([key.split("_")[0] for key in keys], dtype=object)
    data = DataProto.from_dict({"response_mask": mask, "token_level_rewards": scores}, {"uid": groups})
    found = compute_advantage_for_multi_trajectories(
        data,
        batch_keys=keys,
        adv_estimator=algorithm.adv_estimator,
        norm_adv_by_std_in_grpo=algorithm.norm_adv_by_std_in_grpo,
        config=algorithm,
    ).batch["advantages"]
    assert torch.equal(found != 0, (mask * found[:, :1]) != 0)
    return {key: found[row, 0].item() for row, key in enumerate(keys)}


outcome_lists = st.lists(st.sampled_from([PASS, FAIL, VOID]), min_size=SIZE, max_size=SIZE)


@settings(deadline=None, max_examples=150)
@given(
    stream=st.lists(outcome_lists, min_size=16, max_size=16),
    wanted=st.integers(1, 4),
    rounds=st.integers(1, 3),
    by_std=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_a_step_agrees_with_numpy(
    stream: list[list[Outcome]], wanted: int, rounds: int, by_std: bool, seed: int
) -> None:
    expected = reference(stream, wanted, wanted * (1 + rounds), by_std)
    queue = Queue()
    manager = Manager(stream, queue, seed)
    with pytest.MonkeyPatch.context() as monkeypatch:
        step = collector(queue, manager, wanted, rounds, monkeypatch)
        if expected is None:
            with pytest.raises(StepStopped):
                step.sample(7, "train", wanted)
            return
        batch, _ = step.sample(7, "train", wanted)
    assert sorted(batch.keys) == sorted(expected)
    assert sorted(queue.rewards) == sorted(expected), "episodes of replaced groups are left in the transfer queue"
    assert verls_advantages(batch.keys, queue.rewards, by_std) == pytest.approx(expected, abs=1e-5)


def test_a_task_that_is_drawn_again_in_a_step_gets_further_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    queue = Queue()
    manager = Manager([[PASS] * SIZE, [FAIL] * SIZE, [PASS, FAIL] * 2], queue, 0)
    collector(queue, manager, 1, 3, monkeypatch, tasks=2).sample(7, "train", 1)
    assert [(order.uid, order.first_index, order.step, order.size) for order in manager.orders] == [
        ("t0", 0, 7, SIZE),
        ("t1", 0, 7, SIZE),
        ("t0", SIZE, 7, SIZE),
    ]


def test_the_order_of_a_batch_does_not_depend_on_which_group_finished_first(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = [[PASS, FAIL] * 2] * 4
    batches = []
    for seed in range(5):
        queue = Queue()
        batch, _ = collector(queue, Manager(stream, queue, seed), 4, 1, monkeypatch).sample(7, "train", 4)
        batches.append(batch.keys)
    assert all(keys == batches[0] for keys in batches)


def test_an_episode_that_is_not_in_the_queue_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    from stateward.errors import SystemFault

    class Forgetful(Queue):
        def kv_list(self, partition: str) -> dict[str, dict[str, Any]]:
            return {partition: dict(list(super().kv_list(partition)[partition].items())[1:])}

    queue = Forgetful()
    with pytest.raises(SystemFault, match="1 episodes are not in the transfer queue"):
        collector(queue, Manager([[PASS, FAIL] * 2], queue, 0), 1, 1, monkeypatch).sample(7, "train", 1)


def test_shuffled_rewards_keep_each_groups_rewards_and_lose_who_earned_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control. Rewards stand on an episode's last token, wherever that is."""
    from transfer_queue import KVBatchMeta
    from verl.utils import tensordict_utils

    from stateward.training import trainer

    lengths, rewards = [2, 3, 1, 4, 2, 3, 1, 4], [1.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 0.0]
    rows = []
    for number, (n, reward) in enumerate(zip(lengths, rewards, strict=True)):
        score = torch.zeros(n)
        score[-1] = reward
        rows.append({"uid": f"g{number // 4}", "rm_scores": score})
    put: list[Any] = []
    monkeypatch.setattr(
        trainer.transfer_queue, "kv_batch_get", lambda **_: tensordict_utils.list_of_dict_to_tensordict(rows)
    )
    monkeypatch.setattr(trainer.transfer_queue, "kv_batch_put", lambda **given: put.append(given["fields"]))
    batch = KVBatchMeta(partition_id="train", keys=[f"g{i // 4}_{i % 4}_0" for i in range(8)], tags=[{}] * 8)
    seen = set()
    for seed in range(12):
        trainer.shuffle_rewards(batch, seed)
        scores = list(put[-1]["rm_scores"].unbind())
        assert [len(score) for score in scores] == lengths
        assert all(torch.equal(score[:-1], torch.zeros(len(score) - 1)) for score in scores)
        given = [score[-1].item() for score in scores]
        assert sorted(given[:4]) == sorted(rewards[:4])
        assert sorted(given[4:]) == sorted(rewards[4:])
        seen.add(tuple(given))
    assert len(seen) > 4
    trainer.shuffle_rewards(batch, 3)
    again = put[-1]["rm_scores"].values()
    trainer.shuffle_rewards(batch, 3)
    assert torch.equal(again, put[-1]["rm_scores"].values()), "a resumed run must shuffle alike"
