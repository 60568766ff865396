"""A world as an OpenEnv environment (package ``openenv`` 0.10): reset opens it, step calls a tool or ends the episode.

The trainer on the other side runs the conversation and the simulated user; this side has the state, the tools and the
check. A system fault ends the episode with the outcome ``void`` and no reward: it is not the policy's failure.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Literal

from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, EnvironmentMetadata, Observation, State
from pydantic import Field

from stateward.errors import SystemFault, UserError, nearest
from stateward.grading import Evidence, Grader
from stateward.sandbox import Sandbox, World, replay_history
from stateward.tasks import Task
from stateward.tasks.task import DIRECT_FAILED

SPLIT = "tasks"


class WorldAction(Action):  # type: ignore[misc]  # the package has no types for mypy
    """Call a tool of the world (`kind` call), or end the episode with the assistant's last text (`kind` finish).

    A call of a tool that ends the conversation ends the episode too, and is not run. `response` and `messages` (the
    conversation in chat form) are for checks that read them; they count where the episode ends.
    """

    kind: Literal["call", "finish"] = "call"
    tool: str = ""
    arguments: dict[str, Any] = Field(default_factory=dict)
    response: str = ""
    messages: list[dict[str, Any]] = Field(default_factory=list)


class WorldObservation(Observation):  # type: ignore[misc]
    """After a reset: the task. After a call: the tool's answer, and in `direct` what it showed to the user, which
    stands in the conversation as a message of the assistant. After a finish, or a fault: the outcome."""

    task: str = ""
    system: str = ""
    history: list[dict[str, Any]] = Field(default_factory=list)
    query: str = ""
    user_context: str = ""
    tools: list[dict[str, Any]] = Field(default_factory=list)
    text: str = ""
    is_error: bool = False
    direct: str = ""
    outcome: str = ""
    failure: dict[str, Any] = Field(default_factory=dict)
    fault_kind: str = ""
    fault_cause: str = ""


class WorldState(State):  # type: ignore[misc]
    """`final_state` is known after a finish."""

    task: str = ""
    initial_state_hash: str = ""
    final_state: dict[str, Any] = Field(default_factory=dict)


class WorldEnvironment(Environment):  # type: ignore[misc]
    """One session: one world at a time, of any of `tasks`."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(
        self, tasks: Sequence[Task], sandbox: Sandbox, grader: Grader, loop: asyncio.AbstractEventLoop
    ) -> None:
        super().__init__()
        self._tasks = {task.uid: task for task in tasks}
        self._sandbox, self._grader, self._loop = sandbox, grader, loop
        self._task: Task | None = None
        self._world: World | None = None
        self._calls: list[dict[str, Any]] = []
        self._shown: list[str] = []
        self._state = WorldState()

    def reset(self, seed: int | None = None, episode_id: str | None = None, **_: Any) -> WorldObservation:
        raise NotImplementedError("the server calls reset_async")

    def step(self, action: WorldAction, timeout_s: float | None = None, **_: Any) -> WorldObservation:
        raise NotImplementedError("the server calls step_async")

    async def reset_async(
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        task: str | None = None,
        index: int | None = None,
        split: str = SPLIT,
    ) -> WorldObservation:
        """Open a fresh world of the task named by `task` (its uid), by `index`, or else by `seed` modulo their number.

        Raises:
            UserError: no such task.
        """
        await self._end()
        chosen = self._choose(task, (seed or 0) % len(self._tasks) if index is None else index)
        self._state = WorldState(episode_id=episode_id, task=chosen.uid)
        try:
            world = await self._sandbox.open(chosen)
            self._world, self._task = world, chosen.filled(world.init_result)
            self._calls, self._shown = [], []
            await replay_history(self._task, world)
        except SystemFault as fault:
            return await self._void(fault)
        self._state.initial_state_hash = world.initial_state_hash
        return WorldObservation(
            task=chosen.uid,
            system=self._task.system,
            history=[dict(message) for message in self._task.history],
            query=self._task.query,
            user_context=self._task.user_context,
            tools=[tool.to_openai() for tool in (*world.tools, *chosen.builtin_tools)],
        )

    async def step_async(self, action: WorldAction, timeout_s: float | None = None) -> WorldObservation:
        """Call or finish.

        Raises:
            UserError: there was no reset, or the episode has ended.
        """
        if self._world is None or self._task is None:
            raise UserError("there is no episode under way", "it has ended, or never began", "call reset first")
        self._state.step_count += 1
        try:
            if action.kind == "call" and action.tool not in self._task.end_turn_tools:
                return await self._call(self._world, self._task, action, timeout_s)
            if action.kind == "call":
                self._record(action, "", is_error=False)
            return await self._finish(self._world, self._task, action)
        except SystemFault as fault:
            return await self._void(fault)

    @property
    def state(self) -> WorldState:
        return self._state

    def get_metadata(self) -> EnvironmentMetadata:
        return EnvironmentMetadata(
            name="stateward", description="Tasks whose reward is the state that the agent left behind", version="1"
        )

    def list_splits(self) -> list[str]:
        return [SPLIT]

    def num_tasks(self, split: str) -> int:
        self._check_split(split)
        return len(self._tasks)

    def list_tasks(self, split: str) -> list[dict[str, Any]]:
        self._check_split(split)
        return [self.get_task(split, index) for index in range(len(self._tasks))]

    def get_task(self, split: str, index: int) -> dict[str, Any]:
        self._check_split(split)
        task = list(self._tasks.values())[index]
        return {"id": task.uid, "index": index, "domain": task.domain, "tags": list(task.tags)}

    def close(self) -> None:
        """Destroy the world. The server calls this from a thread of its own, and waits."""
        if self._world is not None:
            asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()

    async def _call(self, world: World, task: Task, action: WorldAction, timeout_s: float | None) -> WorldObservation:
        if any(tool.name == action.tool for tool in task.builtin_tools):
            text, is_error = "ok", False
        else:
            result = await world.call(
                action.tool, action.arguments, call_id=f"{self._state.step_count}", deadline=timeout_s
            )
            text, is_error = result.text, result.is_error
        direct = ""
        policy = next((p for p in task.tools if p.name == action.tool and p.direct_response), None)
        if policy is not None and not is_error:
            try:
                direct = policy.direct_text(text)
                self._shown.append(direct)
            except ValueError:
                text, is_error = DIRECT_FAILED, True
        self._record(action, text, is_error=is_error)
        return WorldObservation(task=self._state.task, text=text, is_error=is_error, direct=direct)

    def _record(self, action: WorldAction, text: str, *, is_error: bool) -> None:
        made = {"name": action.tool, "arguments": action.arguments, "result": text, "is_error": is_error}
        self._calls.append(made)

    async def _finish(self, world: World, task: Task, action: WorldAction) -> WorldObservation:
        self._state.final_state = await world.state()
        grade = await self._grader.grade(
            task.check,
            Evidence(
                response=action.response,
                messages=action.messages,
                tool_calls=self._calls,
                tool_direct_responses=self._shown,
                effects=self._state.final_state,
                init_result=world.init_result,
                session_id=self._state.episode_id or "",
                metadata=dict(task.metadata),
            ),
        )
        if grade.fault_kind:
            raise SystemFault(grade.fault_kind, grade.fault_cause)
        await self._end()
        return WorldObservation(
            task=task.uid, done=True, reward=grade.reward, outcome=grade.outcome.value, failure=grade.failure
        )

    async def _void(self, fault: SystemFault) -> WorldObservation:
        await self._end()
        return WorldObservation(
            task=self._state.task, done=True, outcome="void", fault_kind=fault.kind, fault_cause=fault.cause
        )

    async def _end(self) -> None:
        world, self._world, self._task = self._world, None, None
        if world is not None:
            await world.aclose()

    def _choose(self, uid: str | None, index: int) -> Task:
        if uid is not None:
            if uid not in self._tasks:
                raise UserError(f"there is no task {uid!r} here", "", nearest(uid, self._tasks))
            return self._tasks[uid]
        if not 0 <= index < len(self._tasks):
            raise UserError(f"there is no task {index}", "", f"use 0 to {len(self._tasks) - 1}")
        return list(self._tasks.values())[index]

    def _check_split(self, split: str) -> None:
        if split != SPLIT:
            raise UserError(f"there is no split {split!r}", "", nearest(split, [SPLIT]))
