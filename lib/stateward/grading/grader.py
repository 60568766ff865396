"""`Grader`: the asyncio client of the warm grader."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from stateward.errors import SystemFault, UserError
from stateward.grading import frames
from stateward.grading.confine import clean_environment, hide, layers, require_layers
from stateward.grading.values import Evidence, Grade, GradeLimits, JudgeModel
from stateward.grading.verdict import read_questions, read_verdict
from stateward.outcome import Outcome, Usage
from stateward.tasks.task import Check

#: The warm grader, as arguments of this Python. ``-P``: the working directory is no place to import from.
_COMMAND = ("-P", "-m", "stateward.grading.worker")
_START_SECONDS = 60.0
_STOP_SECONDS = 10.0
_JUDGE_SEED = 0  # the same question gets the same answer where the endpoint honours a seed
_MAX_QUESTIONS = 500  # of one check: the judge's time does not count, so an endless loop of questions must end here
_MAX_ANSWER = 20_000  # characters of a judge's answer that the check sees

_Event = tuple[frames.Header, bytes]


@dataclass(kw_only=True)
class _Warm:
    """A running warm grader and the checks that wait for its messages."""

    process: asyncio.subprocess.Process
    isolation: str
    waiting: dict[int, asyncio.Queue[_Event]] = field(default_factory=dict)
    reader: asyncio.Task[None] | None = None
    dead: str = ""

    async def send(self, header: frames.Header, body: bytes = b"") -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(frames.pack(header, body))
        await self.process.stdin.drain()

    async def read(self) -> None:
        """Hand every message to the check that it is for, until the process ends."""
        assert self.process.stdout is not None
        try:
            while True:
                header, body = await _receive(self.process.stdout)
                if header["id"] in self.waiting:
                    self.waiting[header["id"]].put_nowait((header, body))
        except asyncio.IncompleteReadError:
            pass  # it ended; the status says how
        finally:
            status = await self.process.wait()
            self.dead = f"the grading process ended with exit status {status}"
            for queue in self.waiting.values():
                queue.put_nowait(({"op": "done", "cause": self.dead, "seconds": 0.0, "cpu": 0.0}, b""))


class Grader:
    """Runs checks in confined processes, forked from one warm process that this object owns.

    An async context manager. `judge` answers the checks' questions; without one, a check that asks is void. With fewer
    layers of confinement than `require` names (`stateward.grading.confine.LAYERS`) it refuses to start: UserError.
    """

    def __init__(
        self, limits: GradeLimits | None = None, judge: JudgeModel | None = None, *, require: Sequence[str] = ()
    ) -> None:
        self.limits, self.judge, self.require = limits or GradeLimits(), judge, require
        self._slots = asyncio.Semaphore(self.limits.concurrency)
        self._starting = asyncio.Lock()
        self._warm: _Warm | None = None
        self._next_id = 0

    async def __aenter__(self) -> Grader:
        await self._running()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        warm, self._warm = self._warm, None
        if warm is not None:
            await _stop(warm)

    @property
    def isolation(self) -> str:
        """What keeps checks from network and processes, for instance ``namespace+filter+hook``."""
        return self._warm.isolation if self._warm else ""

    async def load(self, check: Check) -> None:
        """Run the module part of a check's file, as every grading of it will.

        Raises:
            UserError: it does not load: each of its trials would be void.
            SystemFault: kind ``grader``; the warm grader cannot be started, or a process of it ended.
        """
        grade = await self.grade(check, Evidence(), load_only=True)
        if grade.fault_kind and grade.fault_kind != "task":
            raise SystemFault(grade.fault_kind, grade.fault_cause)
        if grade.fault_kind:
            raise UserError(
                f"{check.file}: the check {check.function} cannot be loaded",
                grade.fault_cause,
                "mend it; it must load from the dataset's file alone, without files beside it",
            )

    async def grade(self, check: Check, evidence: Evidence, *, load_only: bool = False) -> Grade:
        """The grade of `evidence` by `check`. A fault of the check or the judge is a void grade, not an exception.

        Raises:
            SystemFault: kind ``grader``; the warm grader cannot be started.
        """
        async with self._slots:
            warm = await self._running()
            self._next_id += 1
            job = self._next_id
            events: asyncio.Queue[_Event] = asyncio.Queue()
            warm.waiting[job] = events
            try:
                return await self._grade(warm, job, events, self._request(job, check, load_only), evidence)
            except BaseException:
                await _cancel(warm, job)
                raise
            finally:
                del warm.waiting[job]

    async def _grade(
        self, warm: _Warm, job: int, events: asyncio.Queue[_Event], request: frames.Header, evidence: Evidence
    ) -> Grade:
        usage, questions = Usage(), 0
        try:
            await warm.send(request, json.dumps(vars(evidence)).encode())
            while True:
                header, body = await events.get()
                if header["op"] == "done":
                    return _grade_of(header, body, usage, warm.isolation)
                try:
                    conversations = read_questions(body)
                except ValueError as error:
                    await _cancel(warm, job)
                    return _void("grader", str(error), usage, warm.isolation)
                questions += max(1, len(conversations))
                if questions > _MAX_QUESTIONS:
                    await _cancel(warm, job)
                    cause = f"the check asked the judge more than {_MAX_QUESTIONS} questions"
                    return _void("grader", cause, usage, warm.isolation)
                try:
                    answers = await self._ask(conversations, usage)
                except SystemFault as fault:
                    await _cancel(warm, job)
                    return _void("judge", fault.cause, usage, warm.isolation)
                await warm.send({"op": "answers", "id": job}, json.dumps(answers).encode())
        except (BrokenPipeError, ConnectionResetError) as error:
            return _void("grader", warm.dead or f"the grading process is gone: {error}", usage, warm.isolation)

    def _request(self, job: int, check: Check, load_only: bool) -> frames.Header:
        return {
            "op": "grade",
            "id": job,
            "check": {
                "file": check.file,
                "function": check.function,
                "source": check.source,
                "load_only": load_only,
                "fixtures": {f.name: {"type": f.type, "parameters": f.parameters} for f in check.fixtures},
            },
            "deadline": self.limits.deadline_seconds,
            "memory_bytes": self.limits.memory_mb << 20,
            "prints": self.limits.max_print_bytes,
            "max_result_bytes": self.limits.max_result_bytes,
        }

    async def _ask(self, conversations: Sequence[list[dict[str, Any]]], usage: Usage) -> list[str]:
        judge = self.judge
        if judge is None:
            raise SystemFault("judge", "the check asks the judge and none is configured (episode.judge)")

        async def one(messages: list[dict[str, Any]]) -> str:
            sample = await judge.chat(messages, max_tokens=self.limits.judge_max_tokens, seed=_JUDGE_SEED)
            usage.add(sample.usage)
            if sample.finish == "length":
                limit = self.limits.judge_max_tokens
                raise SystemFault(
                    "judge", f"the judge's answer was cut at {limit} tokens: raise episode.judge.max_tokens"
                )
            text = sample.turn.text.strip() if sample.turn else ""
            if not text:
                raise SystemFault("judge", "the judge gave an empty answer")
            return text[:_MAX_ANSWER]

        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(one(messages)) for messages in conversations]
        except ExceptionGroup as several:
            # One failure is enough to void the grade; a bug is told before a fault.
            bugs = [error for error in several.exceptions if not isinstance(error, SystemFault)]
            raise (bugs or several.exceptions)[0] from None
        return [task.result() for task in tasks]

    async def _running(self) -> _Warm:
        async with self._starting:
            if self._warm is None or self._warm.dead:
                warm = await _start()
                try:
                    require_layers(self.require, warm.isolation)
                except UserError:
                    await _stop(warm)
                    raise
                if not {"namespace", "landlock"} & layers(warm.isolation):
                    hide()  # then a check can open this process' files in /proc, its environment and memory among them
                self._warm = warm
            return self._warm


async def _start() -> _Warm:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *_COMMAND,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=clean_environment(os.environ),
        start_new_session=True,  # a signal to the stage's process group ends checks through us, in order
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(_START_SECONDS):
            header, _ = await _receive(process.stdout)
    except (TimeoutError, asyncio.IncompleteReadError) as error:
        if isinstance(error, TimeoutError):  # one that ended by itself is not killed: that could lose its exit status
            process.kill()
        status = await process.wait()
        raise SystemFault("grader", f"the grading process did not start: {error!r}, exit status {status}") from error
    warm = _Warm(process=process, isolation=header["isolation"])
    warm.reader = asyncio.create_task(warm.read())
    return warm


async def _stop(warm: _Warm) -> None:
    """End the warm grader; its children end with it."""
    assert warm.process.stdin is not None
    warm.process.stdin.close()
    try:
        async with asyncio.timeout(_STOP_SECONDS):
            await warm.process.wait()
    except TimeoutError:
        warm.process.kill()
        await warm.process.wait()
    if warm.reader is not None:
        await warm.reader


async def _cancel(warm: _Warm, job: int) -> None:
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # gone already: nothing is left to cancel
        await warm.send({"op": "cancel", "id": job})


async def _receive(stream: asyncio.StreamReader) -> _Event:
    head, body = frames.lengths(await stream.readexactly(frames.PREFIX))
    return frames.header(await stream.readexactly(head)), await stream.readexactly(body)


def _grade_of(header: frames.Header, body: bytes, usage: Usage, isolation: str) -> Grade:
    if header["cause"]:
        return _void("grader", header["cause"], usage, isolation, header)
    try:
        verdict = read_verdict(body)
    except ValueError as error:
        return _void("grader", str(error), usage, isolation, header)
    return Grade(
        outcome=verdict["outcome"],
        reward=verdict["reward"],
        failure=verdict.get("failure", {}),
        fault_kind=verdict.get("kind", ""),
        fault_cause=verdict.get("cause", ""),
        prints=verdict.get("prints", ""),
        metadata=verdict.get("metadata", {}),
        judge_answers=verdict.get("judge_answers", []),
        judge_usage=usage,
        seconds=header["seconds"],
        cpu_seconds=header["cpu"],
        isolation=isolation,
    )


def _void(kind: str, cause: str, usage: Usage, isolation: str, header: frames.Header | None = None) -> Grade:
    return Grade(
        outcome=Outcome.VOID,
        reward=float("nan"),
        fault_kind=kind,
        fault_cause=cause,
        judge_usage=usage,
        seconds=header["seconds"] if header else 0.0,
        cpu_seconds=header["cpu"] if header else 0.0,
        isolation=isolation,
    )
