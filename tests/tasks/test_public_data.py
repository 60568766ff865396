"""The public ThinkingBox data hydrates as it is. Set STATEWARD_THINKINGBOX_DATA to a checkout of it."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from stateward.tasks import Task, load_tasks, read_selectors

ROOT = os.environ.get("STATEWARD_THINKINGBOX_DATA", "")
pytestmark = pytest.mark.skipif(not ROOT, reason="STATEWARD_THINKINGBOX_DATA does not name a checkout of the data")

BENCH = "releases/thinkingbox_bench_v1/testlist_thinkingbox_bench_v1.yaml"


def load(selectors: str) -> list[Task]:
    return load_tasks(Path(ROOT) / "dataset", Path(ROOT) / selectors, agent="think")


def test_the_benchmark_hydrates_in_three_seconds_of_processor_time() -> None:
    started = time.process_time()
    tasks = load(BENCH)
    seconds = time.process_time() - started
    assert len(tasks) == 507
    assert seconds < 3
    assert [task.uid for task in tasks] == read_selectors(Path(ROOT) / BENCH)
    for task in tasks:
        assert list(task.world) == [server.name for server in task.servers]
        assert task.end_turn_tools
        compile(task.check.source, task.check.file, "exec")


@pytest.mark.parametrize(
    "selectors",
    [
        "dataset/example_test_list.yaml",
        "releases/dataset_2604_airline_tau_bench/testlist_2604_airline_tau_bench.yaml",
    ],
)
def test_the_other_lists_hydrate(selectors: str) -> None:
    tasks = load(selectors)
    assert len(tasks) == len(read_selectors(Path(ROOT) / selectors))
    assert not [task for task in tasks if "$THINKINGBOX_DATA" in str(task.world)]
