"""Scripts of the practice tasks, each played once through the real sandbox, grader and episode loop.

``golden/*.yaml`` holds one right solution a task, a list of ``say: text`` and ``tool: {arguments}`` steps;
``wrong/*.yaml`` holds lists of steps that do something forbidden, unasked or incomplete.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import yaml

from stateward.episode.loop import EpisodeRunner
from stateward.episode.policy import ChatPolicy
from stateward.grading import Grader
from stateward.outcome import EpisodeRecord, Trial
from stateward.policy.samplers.scripted import ScriptedChat
from stateward.policy.turn import ToolCall, Turn
from stateward.practice import dataset_path
from stateward.practice.user import ScriptedUser
from stateward.sandbox import Sandbox
from stateward.tasks import load_tasks
from stateward.tasks.task import Task

Step = dict[str, Any]
Played = dict[str, dict[str, EpisodeRecord]]

HERE = Path(__file__).parent
NOTHING = [{"say": "I did nothing. <DONE>"}]
AT_A_TIME = 8


def judge(messages: list[dict[str, Any]]) -> str:
    """Says yes to every good thing about a message, unless it is the message of a script that did nothing."""
    text = " ".join(str(m.get("content", "")) for m in messages)
    return "No" if "I did nothing" in text or "The message claims" in text else "Yes"


def turns(steps: list[Step]) -> list[Turn]:
    """One assistant turn a step; a script without a last word gets one."""
    out = []
    for number, step in enumerate(steps):
        ((name, value),) = step.items()
        if name == "say":
            out.append(Turn(text=value))
        else:
            out.append(Turn(calls=(ToolCall(id=f"call-{number}", name=name, arguments=value),)))
    if "<DONE>" not in out[-1].text:
        out.append(Turn(text="That is done. <DONE>"))
    return out


@pytest.fixture(scope="session")
def golden() -> dict[str, list[Step]]:
    return {
        uid: steps for path in HERE.glob("golden/*.yaml") for uid, steps in yaml.safe_load(path.read_text()).items()
    }


@pytest.fixture(scope="session")
def wrong() -> dict[str, list[list[Step]]]:
    return {uid: lists for path in HERE.glob("wrong/*.yaml") for uid, lists in yaml.safe_load(path.read_text()).items()}


@pytest.fixture(scope="session")
def tasks() -> dict[str, Task]:
    folder = dataset_path()
    return {t.uid: t for name in ("train", "benchmark") for t in load_tasks(folder, folder / f"{name}.yaml")}


@pytest.fixture(scope="session")
def played(tasks: dict[str, Task], golden: dict[str, list[Step]]) -> Played:
    """{uid: {"golden": record, "nothing": record}}"""
    return asyncio.run(_play(tasks, {uid: {"golden": golden[uid], "nothing": NOTHING} for uid in tasks}))


@pytest.fixture(scope="session")
def played_wrong(tasks: dict[str, Task], wrong: dict[str, list[list[Step]]]) -> Played:
    """{uid: {"0": record, "1": record, ...}}"""
    return asyncio.run(_play(tasks, {uid: {str(n): s for n, s in enumerate(wrong[uid])} for uid in tasks}))


async def _play(tasks: dict[str, Task], scripts: dict[str, dict[str, list[Step]]]) -> Played:
    records: Played = {uid: {} for uid in tasks}
    gate = asyncio.Semaphore(AT_A_TIME)
    async with Sandbox() as sandbox, Grader(judge=ScriptedChat(judge)) as grader:

        async def play(uid: str, name: str, steps: list[Step]) -> None:
            chat = ScriptedChat(turns(steps))
            runner = EpisodeRunner(
                sandbox=sandbox,
                grader=grader,
                policy=ChatPolicy(model=chat, fingerprint="script", max_tokens_per_turn=1_000),
                user=ScriptedUser(),
            )
            trial = Trial(uid=uid, index=0, policy="script", settings=name)
            async with gate:
                records[uid][name] = await runner.run(tasks[uid], trial, seed=1)

        await asyncio.gather(*(play(uid, name, steps) for uid in tasks for name, steps in scripts[uid].items()))
    return records
