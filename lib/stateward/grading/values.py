"""What goes into a grade and what comes out: `Evidence`, `GradeLimits`, `Grade`, and the judge as a protocol."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from stateward.outcome import Outcome, Usage


@dataclass(frozen=True, kw_only=True)
class GradeLimits:
    """Bounds of one check.

    Attributes:
        deadline_seconds: wall clock; the time that the judge takes does not count.
        memory_mb: address space above the warm grader's own.
        concurrency: checks under way at a time; one that waits for the judge still counts.
        judge_max_tokens: of one answer of the judge.
        max_print_bytes: how much of what a check prints is kept.
        max_result_bytes: a check that reports more than this is a fault.
    """

    deadline_seconds: float = 60.0
    memory_mb: int = 2_048
    concurrency: int = 32
    judge_max_tokens: int = 1_024
    max_print_bytes: int = 65_536
    max_result_bytes: int = 4_000_000


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What a check may look at. JSON values only.

    Attributes:
        response: the last assistant text.
        messages: the conversation as chat messages; one that a tool showed to the user says ``direct: true``.
        tool_calls: {"name", "arguments", "result", "is_error"} in the order made; "id" if known.
        effects: {server: final state}. init_result: {server: result of its initialisation}.
        tool_direct_responses: texts that tools showed to the user directly.
        metadata: what the check starts with as ``x.metadata``.
    """

    response: str = ""
    messages: list[dict[str, Any]] = field(default_factory=list)
    tool_calls: list[dict[str, Any]] = field(default_factory=list)
    effects: dict[str, Any] = field(default_factory=dict)
    init_result: dict[str, Any] = field(default_factory=dict)
    tool_direct_responses: list[str] = field(default_factory=list)
    session_id: str = ""
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Grade:
    """The result of a check.

    Attributes:
        outcome: pass, fail or void. reward: in [0, 1], NaN when void; only 1.0 passes.
        failure: of a fail: {file, line, text, message}.
        fault_kind, fault_cause: of a void: ``grader`` or ``judge``, and what happened.
        prints: what the check printed, cut at the limit.
        metadata: ``x.metadata`` as the check left it.
        judge_answers: {question, answer} of every judge question.
        judge_usage: tokens of the judge's requests.
        seconds, cpu_seconds: of the check's own process.
        isolation: what kept the check from network and processes (see `stateward.grading.confine`).
    """

    outcome: Outcome
    reward: float
    failure: dict[str, Any] = field(default_factory=dict)
    fault_kind: str = ""
    fault_cause: str = ""
    prints: str = ""
    metadata: dict[str, Any] = field(default_factory=dict)
    judge_answers: list[dict[str, Any]] = field(default_factory=list)
    judge_usage: Usage = field(default_factory=Usage)
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    isolation: str = ""


class JudgeTurn(Protocol):
    @property
    def text(self) -> str: ...


class JudgeSample(Protocol):
    @property
    def turn(self) -> JudgeTurn | None: ...

    @property
    def usage(self) -> Usage: ...

    @property
    def finish(self) -> str: ...


class JudgeModel(Protocol):
    """A chat endpoint, as `stateward.policy.turn.ChatModel` has it; grading does not know that room."""

    async def chat(
        self, messages: list[dict[str, Any]], *, tools: list[dict[str, Any]] | None = None, max_tokens: int, seed: int
    ) -> JudgeSample: ...
