"""The public data's tool servers run unchanged and forked: golden calls pass, doing nothing fails.

STATEWARD_THINKINGBOX_DATA: a checkout of the data. STATEWARD_THINKINGBOX_PYTHON: a Python that has their requirements
(fastmcp below 4, odata-query, sqlparse, python-dateutil, typesense), by default this one. The 507 tasks take a
minute on two cores.

The knowledge base (`sources`) is left out of the worlds: the servers index it with an embedding model that the search
engine downloads at the first use.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stateward.grading import Evidence, Grade, Grader
from stateward.sandbox import Sandbox, SandboxLimits
from stateward.tasks import Task, load_tasks

ROOT = os.environ.get("STATEWARD_THINKINGBOX_DATA", "")
PYTHON = os.environ.get("STATEWARD_THINKINGBOX_PYTHON", sys.executable)
LIST = "releases/thinkingbox_bench_v1/testlist_thinkingbox_bench_v1.yaml"
PACKAGES = ("tb_business_ops_servers_202606", "thinkingbox_tools")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(7_200),
    pytest.mark.skipif(not ROOT, reason="STATEWARD_THINKINGBOX_DATA does not name a checkout of the data"),
]
LIMITS = SandboxLimits(max_snapshots=8, open_deadline_seconds=600, tool_deadline_seconds=600)


@pytest.fixture(scope="module", autouse=True)
def requirements() -> None:
    probe = "import fastmcp.server.tasks.config, odata_query, sqlparse, dateutil, typesense"
    if subprocess.run([PYTHON, "-c", probe], capture_output=True, check=False).returncode:
        pytest.skip(f"{PYTHON} lacks the public servers' requirements; name one in STATEWARD_THINKINGBOX_PYTHON")


def local(task: Task) -> Task:
    """The task with its servers under PYTHON and importable from the checkout, and without a knowledge base."""
    path = os.pathsep.join(str(Path(ROOT) / "servers" / package) for package in PACKAGES)
    servers = tuple(
        replace(s, command=(PYTHON, *s.command[1:]), env={**s.env, "PYTHONPATH": path}) for s in task.servers
    )
    return replace(
        task,
        servers=servers,
        world={n: {**config, "sources": []} if "sources" in config else config for n, config in task.world.items()},
    )


def golden_calls(task: Task) -> list[tuple[str, dict[str, Any]]]:
    (config,) = task.world.values()
    steps = (config.get("golden_test_case") or {}).get("tool_interactions", [])
    return [(step["tool"], step.get("parameters") or {}) for step in steps]


async def play(
    sandbox: Sandbox, grader: Grader, task: Task, calls: Sequence[tuple[str, dict[str, Any]]]
) -> tuple[dict[str, Any], Grade]:
    """(the server's final state, the grade) after these calls."""
    async with await sandbox.open(task) as world:
        for number, (name, arguments) in enumerate(calls):
            await world.call(name, arguments, call_id=f"{number}")
        state = await world.state()
        grade = await grader.grade(task.check, Evidence(effects=state, init_result=world.init_result))
    (effects,) = state.values()
    return effects, grade


async def test_golden_calls_pass_and_doing_nothing_fails() -> None:
    tasks = [local(task) for task in load_tasks(Path(ROOT) / "dataset", Path(ROOT) / LIST, agent="think")]
    assert len(tasks) == 507
    counts: Counter[str] = Counter()
    wrong: list[tuple[str, str]] = []

    async def worker(left: Iterator[Task]) -> None:
        for task in left:
            state, grade = await play(sandbox, grader, task, golden_calls(task))
            idle_state, idle = await play(sandbox, grader, task, [])
            # A check that goes on to ask the judge is void for want of one, once the state was found right.
            counts[f"golden {grade.fault_kind or grade.outcome}"] += 1
            counts[f"nothing {idle.fault_kind or idle.outcome}"] += 1
            right = state["result_db_hash"] == state["golden_db_hash"]
            if not right or (grade.fault_kind or grade.outcome) not in ("pass", "judge"):
                wrong.append((task.uid, f"golden: {grade.fault_cause or grade.failure}"))
            assert idle_state["golden_db_hash"] == state["golden_db_hash"]
            # One task only asks: its golden calls change nothing, so doing nothing is right too.
            asks = idle_state["result_db_hash"] == idle_state["golden_db_hash"]
            if (idle.fault_kind or idle.outcome) != ("pass" if asks else "fail"):
                wrong.append((task.uid, f"nothing: {idle.fault_kind or idle.outcome}"))

    async with Sandbox(LIMITS) as sandbox, Grader() as grader:
        left = iter(tasks)
        await asyncio.gather(*(worker(left) for _ in range(3)))
        assert set(sandbox.explain().values()) == {"forked"}
    assert not wrong, wrong
    assert counts == {"golden pass": 477, "golden judge": 30, "nothing fail": 506, "nothing pass": 1}


async def test_a_task_whose_solution_is_in_its_check() -> None:
    """The other lists give no golden calls as data; this one's solution is read off its check."""
    (task,) = load_tasks(Path(ROOT) / "dataset", ["banking.py:test_transfer_and_balance"], agent="think")
    transfer = {"from_account": "599521725", "to_account": "843847393", "amount": 100}
    async with Sandbox(LIMITS) as sandbox, Grader() as grader:
        _state, grade = await play(sandbox, grader, local(task), [("transfer", transfer)])
        assert grade.fault_kind == "judge"  # every assertion on the state held; the last line asks the judge
        _state, idle = await play(sandbox, grader, local(task), [])
        assert idle.outcome == "fail"
