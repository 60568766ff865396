"""One episode, from an empty world to a graded record. `EpisodeRunner.run` is the boundary that attributes faults."""

from __future__ import annotations

import asyncio
import time
import traceback
from dataclasses import dataclass, field
from typing import Any

from stateward.episode.policy import Policy, PolicySession, assistant_message
from stateward.episode.users import DONE, User
from stateward.errors import SystemFault
from stateward.grading import Evidence, Grader
from stateward.outcome import EpisodeRecord, Outcome, Trial, Usage
from stateward.policy.turn import ToolCall
from stateward.sandbox import Sandbox, World, state_diff
from stateward.tasks.task import Task

Message = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class EpisodeLimits:
    """Bounds of one episode; a task's own limits win where they are smaller."""

    max_agent_turns: int = 60
    max_seconds: float = 3_600.0
    tool_deadline_seconds: float = 30.0


@dataclass(kw_only=True)
class _Progress:
    """What is known of an episode so far, so that a fault loses nothing."""

    messages: list[Message] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)
    direct_responses: list[str] = field(default_factory=list)
    tool_errors: int = 0
    turns: int = 0
    finish: str = ""
    seconds: dict[str, float] = field(default_factory=dict)
    user_usage: Usage = field(default_factory=Usage)
    session: PolicySession | None = None
    initial_state: dict[str, Any] = field(default_factory=dict)
    initial_state_hash: str = ""
    final_state: dict[str, Any] = field(default_factory=dict)

    def clock(self, phase: str) -> _Clock:
        return _Clock(self.seconds, phase)


class _Clock:
    """Adds the wall-clock seconds of a block to a phase."""

    def __init__(self, seconds: dict[str, float], phase: str) -> None:
        self.seconds, self.phase = seconds, phase

    def __enter__(self) -> None:
        self.started = time.monotonic()

    def __exit__(self, *_: object) -> None:
        self.seconds[self.phase] = self.seconds.get(self.phase, 0.0) + time.monotonic() - self.started


@dataclass(frozen=True, kw_only=True)
class EpisodeRunner:
    """Runs trials one at a time; many `run` calls may be under way in one event loop."""

    sandbox: Sandbox
    grader: Grader
    policy: Policy
    user: User | None = None
    limits: EpisodeLimits = field(default_factory=EpisodeLimits)
    keep_tokens: bool = False  # training needs them; an evaluation's store would only grow by them

    async def run(self, task: Task, trial: Trial, seed: int, *, attempt: int = 1) -> EpisodeRecord:
        """The record of one attempt. Raises nothing but cancellation: every fault becomes a void with its cause."""
        progress = _Progress()
        started = time.time()
        record = EpisodeRecord(
            trial=trial,
            outcome=Outcome.VOID,
            reward=float("nan"),
            domain=task.domain,
            seed=seed,
            started=started,
            attempt=attempt,
        )
        try:
            with progress.clock("total"):
                async with asyncio.timeout(self.limits.max_seconds):
                    await self._play(task, trial, seed, progress, record)
        except SystemFault as fault:
            record.fault_kind, record.fault_cause = fault.kind, fault.cause
        except TimeoutError:
            record.fault_kind = "deadline"
            record.fault_cause = f"the episode passed its limit of {self.limits.max_seconds:g} s"
        except Exception:  # noqa: BLE001 - the boundary: one bad task must not end a campaign; the stage reports it
            record.fault_kind, record.fault_cause = "bug", traceback.format_exc(limit=-8)
        self._fill(record, progress)
        return record

    async def _play(self, task: Task, trial: Trial, seed: int, progress: _Progress, record: EpisodeRecord) -> None:
        with progress.clock("open"):
            world = await self.sandbox.open(task)
        async with world:
            progress.initial_state, progress.initial_state_hash = world.initial_state, world.initial_state_hash
            await self._converse(task, world, seed, progress)
            with progress.clock("tools"):
                progress.final_state = await world.state()
            with progress.clock("grade"):
                grade = await self.grader.grade(task.check, _evidence(trial, task, world, progress))
        if grade.fault_kind:
            raise SystemFault(grade.fault_kind, grade.fault_cause)
        record.outcome, record.reward, record.failure = grade.outcome, grade.reward, grade.failure

    async def _converse(self, task: Task, world: World, seed: int, progress: _Progress) -> None:
        task = task.filled(world.init_result)
        await self._replay(task, world)
        progress.messages.append({"role": "system", "content": task.system})
        progress.messages += [dict(message) for message in task.history]
        progress.messages.append({"role": "user", "content": task.query})
        specs = [*world.tools, *task.builtin_tools]
        known = {spec.name for spec in specs}
        session = self.policy.begin(progress.messages, [spec.to_openai() for spec in specs], seed)
        progress.session = session
        limit = min(self.limits.max_agent_turns, task.max_agent_turns or self.limits.max_agent_turns)
        user_turns = 0
        while True:
            if progress.turns >= limit:
                progress.finish = "agent_limit"
                return
            if session.room() < 1:
                progress.finish = "length"
                return
            with progress.clock("sample"):
                turn, cut = await session.next_turn()
            progress.turns += 1
            progress.messages.append(assistant_message(turn))
            if cut:
                # A turn that lost its end cannot be continued as if it were whole.
                progress.finish = "length"
                return
            if turn.calls:
                answers = [await self._call(task, world, call, known, progress) for call in turn.calls]
                progress.messages += answers
                if any(call.name in task.end_turn_tools and not call.error for call in turn.calls):
                    progress.finish = "end_turn_tool"
                    return
                session.observe(answers)
                continue
            if DONE in turn.text:
                progress.finish = "done"
                return
            if self.user is None or not task.user_context:
                progress.finish = "no_user"
                return
            if user_turns >= task.max_user_turns:
                progress.finish = "user_limit"
                return
            with progress.clock("user"):
                reply = await self.user.reply(progress.messages, task.user_context, (seed + user_turns) & 0x7FFFFFFF)
            user_turns += 1
            progress.user_usage.add(reply.usage)
            message = {"role": "user", "content": reply.text}
            progress.messages.append(message)
            if reply.done:
                progress.finish = "user_done"
                return
            session.observe([message])

    async def _call(self, task: Task, world: World, call: ToolCall, known: set[str], progress: _Progress) -> Message:
        """The tool message for one call; a call that cannot be run becomes an error that the model reads."""
        builtin = {tool.name for tool in task.builtin_tools}
        if call.error:
            text, is_error = f"Error: {call.error}", True
        elif call.name not in known:
            text, is_error = f"Error: there is no tool {call.name!r}. Tools: {', '.join(sorted(known))}.", True
        elif call.name in builtin:
            text, is_error = "ok", False
        else:
            with progress.clock("tools"):
                # Our own id: a model's may come twice in one conversation, and a world never applies an id twice.
                result = await world.call(
                    call.name,
                    call.arguments,
                    call_id=f"call-{len(progress.calls)}",
                    deadline=self.limits.tool_deadline_seconds,
                )
            text, is_error = result.text, result.is_error
            direct = next((p.direct_response for p in task.tools if p.name == call.name), "")
            if direct and not is_error:
                progress.direct_responses.append(_format(direct, {"result": text, **call.arguments}))
        progress.tool_errors += is_error
        progress.calls.append({"name": call.name, "arguments": call.arguments, "result": text, "is_error": is_error})
        return {"role": "tool", "tool_call_id": call.id, "name": call.name, "content": text}

    async def _replay(self, task: Task, world: World) -> None:
        """Apply the history's tool calls to the fresh world, so that it stands where the conversation stands."""
        builtin = {tool.name for tool in task.builtin_tools}
        number = 0
        for message in task.history:
            for call in message.get("tool_calls") or ():
                function = call["function"]
                if function["name"] in builtin or call.get("error"):
                    continue
                number += 1
                result = await world.call(
                    function["name"],
                    function["arguments"],
                    call_id=f"history-{number}",
                    deadline=self.limits.tool_deadline_seconds,
                )
                if result.is_error:
                    raise SystemFault("init", f"history call {function['name']} failed: {result.text[:300]}")

    def _fill(self, record: EpisodeRecord, progress: _Progress) -> None:
        record.finish = progress.finish if not record.fault_kind else "fault"
        record.turns = progress.turns
        record.tool_calls, record.tool_errors = len(progress.calls), progress.tool_errors
        record.seconds = {phase: round(seconds, 4) for phase, seconds in progress.seconds.items()}
        record.initial_state_hash = progress.initial_state_hash
        record.final_state = progress.final_state
        if progress.final_state:
            record.state_diff = state_diff(progress.initial_state, progress.final_state)
        record.messages = progress.messages
        record.usage = {"user": progress.user_usage}
        session = progress.session
        if session is not None:
            record.problems = dict(session.problems)
            record.usage["policy"] = session.usage
            if self.keep_tokens and not record.fault_kind:
                record.tokens = session.tokens()


def _evidence(trial: Trial, task: Task, world: World, progress: _Progress) -> Evidence:
    texts = [m["content"] for m in progress.messages if m["role"] == "assistant" and m.get("content")]
    return Evidence(
        response=texts[-1].replace(DONE, "").strip() if texts else "",
        messages=progress.messages,
        tool_calls=progress.calls,
        effects=progress.final_state,
        init_result=world.init_result,
        tool_direct_responses=progress.direct_responses,
        session_id=trial.key,
        metadata=dict(task.metadata),
    )


def _format(template: str, values: dict[str, Any]) -> str:
    try:
        return template.format(**values)
    except (KeyError, IndexError, ValueError, AttributeError) as error:
        raise SystemFault("init", f"cannot fill {template[:80]!r}: {type(error).__name__} {error}") from error
