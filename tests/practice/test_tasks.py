"""What every practice task promises: the right solution passes, anything else fails, nothing is ever void."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from stateward.difficulty.guard import check_disjoint
from stateward.outcome import EpisodeRecord, Outcome
from stateward.practice import dataset_path
from stateward.tasks import read_selectors
from stateward.tasks.task import Task

TRAIN = read_selectors(dataset_path() / "train.yaml")
BENCHMARK = read_selectors(dataset_path() / "benchmark.yaml")
ALL = pytest.mark.parametrize("uid", [*TRAIN, *BENCHMARK])
#: Kinds in which the right final state is the initial one.
NOTHING_TO_DO = {"limit", "declined", "question", "judged"}

Played = dict[str, dict[str, EpisodeRecord]]


def kind(task: Task) -> str:
    return next(tag.removeprefix("kind:") for tag in task.tags if tag.startswith("kind:"))


def explain(record: EpisodeRecord) -> str:
    said = [(m["role"], m.get("content") or m.get("tool_calls")) for m in record.messages[1:]]
    return f"{record.outcome} {record.fault_kind} {record.fault_cause} {record.failure}\n{said}"


@pytest.mark.slow  # every episode of every task
@ALL
def test_the_golden_solution_passes(uid: str, played: Played) -> None:
    record = played[uid]["golden"]
    assert record.outcome is Outcome.PASS, explain(record)
    assert record.finish == "done"
    assert record.tool_errors == 0


@pytest.mark.slow  # every episode of every task
@ALL
def test_doing_nothing_passes_only_where_it_is_right(uid: str, tasks: dict[str, Task], played: Played) -> None:
    record = played[uid]["nothing"]
    assert record.outcome is (Outcome.PASS if kind(tasks[uid]) in ("limit", "declined") else Outcome.FAIL), explain(
        record
    )


@pytest.mark.slow  # every episode of every task
@ALL
def test_wrong_solutions_fail_by_the_state(uid: str, played_wrong: Played) -> None:
    assert played_wrong[uid], f"{uid} has no wrong solution"
    for record in played_wrong[uid].values():
        assert record.outcome is Outcome.FAIL, explain(record)
        assert "expected" in record.failure["message"], explain(record)


@pytest.mark.slow  # every episode of every task
@ALL
def test_the_golden_solution_changes_what_its_kind_says(uid: str, tasks: dict[str, Task], played: Played) -> None:
    diff = played[uid]["golden"].state_diff
    assert kind(tasks[uid]) not in ("limit", "declined", "question") or not diff, diff
    assert kind(tasks[uid]) in NOTHING_TO_DO or diff


def test_the_scripts_belong_to_the_tasks(golden: dict[str, Any], wrong: dict[str, Any]) -> None:
    assert set(golden) == set(wrong) == {*TRAIN, *BENCHMARK}


def test_train_and_benchmark_are_disjoint(tasks: dict[str, Task]) -> None:
    def body(task: Task) -> str:
        return task.check.source[task.check.source.rindex(f"def {task.check.function}") :].partition('"""\n')[2]

    aspects: dict[str, Callable[[Task], Any]] = {
        "uid": lambda task: task.uid,
        "query": lambda task: task.query.strip().lower(),
        "world": lambda task: task.world_fingerprint,
        "check": lambda task: yaml.safe_dump(body(task)),
    }
    for name, aspect in aspects.items():
        train, held_out = ([aspect(tasks[uid]) for uid in uids] for uids in (TRAIN, BENCHMARK))
        assert not set(train) & set(held_out), name
        assert len(set(train)) == len(TRAIN), name
        assert len(set(held_out)) == len(BENCHMARK), name


def test_the_contamination_guard_finds_nothing(tasks: dict[str, Task]) -> None:
    train, held_out = ([tasks[uid] for uid in uids] for uids in (TRAIN, BENCHMARK))
    evidence = check_disjoint(train, held_out, threshold=0.85)
    assert evidence.disjoint, evidence.overlaps


def test_the_readme_counts_the_tasks(tasks: dict[str, Task]) -> None:
    readme = (dataset_path() / "README.md").read_text()
    halves = [[tasks[uid] for uid in uids] for uids in (TRAIN, BENCHMARK)]
    for aspect in (kind, lambda task: task.domain):
        for name in sorted({aspect(task) for task in tasks.values()}):
            counts = " | ".join(str(sum(aspect(task) == name for task in half)) for half in halves)
            assert re.search(rf"^\| {name} \|.*\| {re.escape(counts)} \|$", readme, re.MULTILINE), (name, counts)


def test_each_half_has_every_kind_and_domain(tasks: dict[str, Task]) -> None:
    halves = [{(t.domain, kind(t)) for t in map(tasks.__getitem__, uids)} for uids in (TRAIN, BENCHMARK)]
    assert {d for d, _ in halves[0]} == {d for d, _ in halves[1]} == {"orders", "library", "clinic"}
    assert {k for _, k in halves[0]} == {k for _, k in halves[1]}
    assert {"write", "lookup", "limit", "declined", "approval", "several", "ask", "judged"} <= {k for _, k in halves[0]}


@pytest.mark.parametrize(("name", "whole"), [("orders_train", TRAIN), ("orders_benchmark", BENCHMARK)])
def test_the_order_desk_lists_need_no_endpoint(name: str, whole: list[str], tasks: dict[str, Task]) -> None:
    uids = read_selectors(dataset_path() / f"{name}.yaml")
    assert uids == [uid for uid in whole if tasks[uid].domain == "orders"]
    assert len(uids) >= 32
    assert all(kind(tasks[uid]) != "judged" for uid in uids)
    for uid in uids:
        assert len(tasks[uid].system.split()) < 220, "tiny prompts stay short"
