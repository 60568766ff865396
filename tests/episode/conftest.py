"""The order desk's tasks, worlds and grader for episodes driven by a script; the real sandbox and the real checks."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest
import pytest_asyncio

from stateward.config import EndpointConfig, EpisodeConfig
from stateward.episode import ChatPolicy, Environment, open_environment
from stateward.outcome import Trial
from stateward.policy.samplers.scripted import ScriptedChat
from stateward.policy.turn import Turn
from stateward.practice import dataset_path
from stateward.tasks import load_tasks, read_selectors
from stateward.tasks.task import Task


@pytest.fixture(scope="session")
def tasks() -> dict[str, Task]:
    path = dataset_path()
    return {task.uid: task for task in load_tasks(path, read_selectors(path / "orders_train.yaml"))}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def environment() -> AsyncIterator[Environment]:
    user = EndpointConfig(kind="scripted", model="stateward.practice.user:ScriptedUser")
    async with open_environment(EpisodeConfig(user=user, max_seconds=60)) as opened:
        yield opened


@pytest.fixture
def scripted() -> Callable[[Sequence[Turn] | Callable[..., Turn]], ChatPolicy]:
    """A policy that says these turns in order."""

    def make(script: Any) -> ChatPolicy:
        return ChatPolicy(model=ScriptedChat(script), fingerprint="script", max_tokens_per_turn=100)

    return make


@pytest.fixture
def trial_of() -> Callable[[Task], Trial]:
    return lambda task: Trial(uid=task.uid, index=0, policy="script", settings="tests")
