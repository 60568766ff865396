"""One episode, from an empty world to a graded record. `EpisodeRunner.run` is the boundary that attributes faults."""

from __future__ import annotations

import asyncio
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from stateward.episode.actions import Actions
from stateward.episode.policy import Policy, PolicySession, assistant_message
from stateward.episode.users import User, is_done
from stateward.errors import SystemFault, UserError
from stateward.grading import Evidence, Grade, Grader
from stateward.outcome import EpisodeRecord, Outcome, Trial, Usage
from stateward.policy.turn import ToolCall
from stateward.sandbox import Opening, Sandbox, Scene, World, replay_history, state_diff
from stateward.sandbox.inside.session import hidden_parts
from stateward.tasks.task import DIRECT_FAILED, Task

Message = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class EpisodeLimits:
    """Bounds of one episode, besides the task's own."""

    max_agent_turns: int = 60  # assistant turns; a task's limit counts actions, see `Actions`
    max_seconds: float = 3_600.0
    tool_deadline_seconds: float = 30.0


@dataclass(kw_only=True)
class _Progress:
    """What is known of an episode so far, so that a fault loses nothing."""

    messages: list[Message] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)
    unseen: int = 0  # results at the end, of calls that took the last action, which the check does not see
    tool_errors: int = 0
    hidden_parts: int = 0  # of results: images, sounds and links, which the policy does not see
    turns: int = 0
    finish: str = ""
    seconds: dict[str, float] = field(default_factory=dict)
    user_usage: Usage = field(default_factory=Usage)
    judge_usage: Usage = field(default_factory=Usage)
    grading: dict[str, Any] = field(default_factory=dict)
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
        except UserError as error:  # preflight tells it before anything is sampled; a server may have changed since
            record.fault_kind, record.fault_cause = "task", str(error)
        except TimeoutError:
            record.fault_kind = "deadline"
            record.fault_cause = f"the episode passed its limit of {self.limits.max_seconds:g} s"
        except Exception:  # noqa: BLE001 - the boundary: one bad task must not end a campaign; the stage reports it
            record.fault_kind, record.fault_cause = "bug", traceback.format_exc(limit=-8)
        try:
            self._fill(record, progress)
        except Exception:  # noqa: BLE001 - as above; a ledger that does not hold together is found here
            record.outcome, record.reward, record.finish = Outcome.VOID, float("nan"), "fault"
            record.fault_kind, record.fault_cause = "bug", traceback.format_exc(limit=-8)
        return record

    async def _play(self, task: Task, trial: Trial, seed: int, progress: _Progress, record: EpisodeRecord) -> None:
        # The world opens while the first turn is sampled; `progress.seconds["open"]` is what was waited for it.
        replay = (lambda world: self._replay(task, world)) if task.history else None
        async with self.sandbox.opening(task, replay) as opening:
            with progress.clock("open"):
                scene = await opening.scene()
            progress.initial_state, progress.initial_state_hash = scene.initial_state, scene.initial_state_hash
            await self._converse(task, opening, scene, seed, progress)
            world = await _opened(opening, progress)
            with progress.clock("tools"):
                progress.final_state = await world.state()
            with progress.clock("grade"):
                grade = await self.grader.grade(task.check, _evidence(trial, task, scene, progress))
        progress.judge_usage, progress.grading = grade.judge_usage, _kept(grade, task)
        if grade.fault_kind:
            raise SystemFault(grade.fault_kind, grade.fault_cause)
        record.outcome, record.reward, record.failure = grade.outcome, grade.reward, grade.failure

    async def _replay(self, task: Task, world: World) -> None:
        """Bring a fresh world to where the task's history left it."""
        await replay_history(task.filled(world.init_result), world, deadline=self.limits.tool_deadline_seconds)

    async def _converse(self, task: Task, opening: Opening, scene: Scene, seed: int, progress: _Progress) -> None:
        task = task.filled(scene.init_result)
        progress.messages.append({"role": "system", "content": task.system})
        progress.messages += [dict(message) for message in task.history]
        progress.messages.append({"role": "user", "content": task.query})
        specs = [*scene.tools, *task.builtin_tools]
        known = {spec.name for spec in specs}
        session = self.policy.begin(progress.messages, [spec.to_openai() for spec in specs], seed)
        progress.session = session
        begun = len(progress.messages)
        actions = Actions(most=task.max_agent_turns)
        if actions.spent:
            progress.finish = "agent_limit"
            return
        user_turns = 0
        while True:
            if progress.turns >= self.limits.max_agent_turns:
                progress.finish = "agent_limit"
                return
            if session.room() < 1:
                progress.finish = "length"
                return
            with progress.clock("sample"):
                turn, cut = await session.next_turn()
            progress.turns += 1
            ends = [call for call in turn.calls if call.name in task.end_turn_tools]
            turn, whole = actions.follow(turn)
            progress.messages.append(assistant_message(turn))
            if cut:
                # A turn that lost its end cannot be continued as if it were whole.
                progress.finish = "length"
                return
            # As the format has it: with them none of the turn's calls is run, and the check sees those that end it.
            progress.calls += [_recorded(call, "", is_error=False) for call in ends]
            if turn.calls:
                if ends:
                    progress.finish = "end_turn_tool"
                    return
                if not whole:
                    progress.finish = "done" if _said_done(progress.messages[begun:]) else "agent_limit"
                    return
                results, shown = await self._answer(task, opening, turn.calls, known, progress)
                if actions.spent:
                    progress.unseen = len(results) - 1
                    progress.finish = "done" if _said_done(progress.messages[begun:]) else "agent_limit"
                    return
                actions.taken += len(shown)
                progress.messages += [{**message, "direct": True} for message in shown]
                session.observe([*results, *shown])
                continue
            if _said_done(progress.messages[begun:]):
                progress.finish = "done"
                return
            if actions.spent:
                progress.finish = "agent_limit"
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

    async def _answer(
        self, task: Task, opening: Opening, calls: Sequence[ToolCall], known: set[str], progress: _Progress
    ) -> tuple[list[Message], list[Message]]:
        """The tools' messages, then what the last of them showed to the user directly; the policy reads both.

        Of several calls in a turn only the last one's direct text is shown, as in the format's own framework.
        """
        policies = {policy.name: policy for policy in task.tools if policy.direct_response}
        answers: list[Message] = []
        shown: list[Message] = []
        for call in calls:
            text, is_error = await self._call(task, opening, call, known, progress)
            shown = []
            if call.name in policies and not is_error:
                try:
                    shown = [{"role": "assistant", "content": policies[call.name].direct_text(text)}]
                except ValueError:
                    text, is_error = DIRECT_FAILED, True
            progress.tool_errors += is_error
            progress.hidden_parts += hidden_parts(text)
            progress.calls.append(_recorded(call, text, is_error=is_error))
            answers.append({"role": "tool", "tool_call_id": call.id, "name": call.name, "content": text})
        progress.messages += answers
        return answers, shown

    async def _call(
        self, task: Task, opening: Opening, call: ToolCall, known: set[str], progress: _Progress
    ) -> tuple[str, bool]:
        """(result, is_error) of one call; one that cannot be run becomes an error that the model reads."""
        builtin = {tool.name for tool in task.builtin_tools}
        if call.error:
            return f"Error: {call.error}", True
        if call.name not in known:
            return f"Error: there is no tool {call.name!r}. Tools: {', '.join(sorted(known))}.", True
        if call.name in builtin:
            return "ok", False
        world = await _opened(opening, progress)
        with progress.clock("tools"):
            # Our own id: a model's may come twice in one conversation, and a world never applies an id twice.
            result = await world.call(
                call.name,
                call.arguments,
                call_id=f"call-{len(progress.calls)}",
                deadline=self.limits.tool_deadline_seconds,
            )
        return result.text, result.is_error

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
        record.usage = {"user": progress.user_usage, "judge": progress.judge_usage}
        record.grading = progress.grading
        session = progress.session
        if session is not None:
            record.problems = dict(session.problems)
            if progress.hidden_parts:
                record.problems["hidden_part"] = progress.hidden_parts
            record.usage["policy"] = session.usage
            if self.keep_tokens and not record.fault_kind:
                record.tokens = session.tokens()


def _said_done(messages: Sequence[Message]) -> bool:
    """Whether the agent's last words say that nothing is left to do. A turn without words does not take them back."""
    said = next((m for m in reversed(messages) if m["role"] == "assistant" and m.get("content")), None)
    return said is not None and not said.get("direct") and is_done(said["content"])


async def _opened(opening: Opening, progress: _Progress) -> World:
    with progress.clock("open"):
        world = await opening.world()
    # The scene was told ahead, from the snapshots; the world's own beginning is what is recorded.
    progress.initial_state, progress.initial_state_hash = world.initial_state, world.initial_state_hash
    return world


def _evidence(trial: Trial, task: Task, scene: Scene, progress: _Progress) -> Evidence:
    said = [m for m in progress.messages if m["role"] == "assistant" and m.get("content")]
    seen = slice(-progress.unseen if progress.unseen else None)
    return Evidence(
        response=next((m["content"] for m in reversed(said) if not m.get("direct")), ""),
        messages=progress.messages[seen],
        tool_calls=progress.calls[seen],
        effects=progress.final_state,
        init_result=scene.init_result,
        tool_direct_responses=[m["content"] for m in said if m.get("direct")],
        session_id=trial.key,
        metadata=dict(task.metadata),
    )


def _recorded(call: ToolCall, text: str, *, is_error: bool) -> dict[str, Any]:
    return {"id": call.id, "name": call.name, "arguments": call.arguments, "result": text, "is_error": is_error}


def _kept(grade: Grade, task: Task) -> dict[str, Any]:
    """What the record keeps of a grade besides its outcome; what is empty or was there before is left out."""
    added = {key: value for key, value in grade.metadata.items() if task.metadata.get(key) != value}
    kept = {"isolation": grade.isolation, "prints": grade.prints, "judge": grade.judge_answers, "metadata": added}
    return {name: value for name, value in kept.items() if value}
