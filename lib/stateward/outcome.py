"""What one attempt is, and what came of it: `Trial`, `Outcome`, `Usage`, `EpisodeRecord`.

These are plain values that cross process boundaries as JSON. They import nothing of stateward but `errors`.
"""

from __future__ import annotations

import enum
import hashlib
import json
from dataclasses import asdict, dataclass, field, fields
from typing import Any


class Outcome(enum.StrEnum):
    """`pass`, `fail` or `void`; void is a system fault and is never a failure (see `stateward.errors`)."""

    PASS = "pass"
    FAIL = "fail"
    VOID = "void"


def fingerprint(value: Any) -> str:
    """First 16 hex digits of the SHA-256 of `value` as canonical JSON (sorted keys, no spaces)."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True, kw_only=True)
class Trial:
    """The identity of one attempt.

    Attributes:
        uid: the task, ``file.py:test_name``.
        index: trial index, 0-based.
        policy: fingerprint of the policy (weights, tokenizer, template, parsers).
        settings: fingerprint of everything else that can change an outcome (sampling, limits, user, judge, servers).
    """

    uid: str
    index: int
    policy: str
    settings: str

    @property
    def key(self) -> str:
        """``uid#index@policy/settings``; unique in a store."""
        return f"{self.uid}#{self.index}@{self.policy}/{self.settings}"

    def seed(self, base: int) -> int:
        """Sampling seed in [0, 2**31), derived from the task and the index and from nothing that varies by run."""
        digest = hashlib.sha256(f"{base}|{self.uid}|{self.index}".encode()).digest()
        return int.from_bytes(digest[:4], "big") & 0x7FFFFFFF


@dataclass(kw_only=True)
class Usage:
    """Token counts of one party (policy, simulated user or judge), summed over its requests."""

    requests: int = 0
    prompt: int = 0
    cached: int = 0
    completion: int = 0
    reasoning: int = 0

    def add(self, other: Usage) -> None:
        for f in fields(self):
            setattr(self, f.name, getattr(self, f.name) + getattr(other, f.name))


@dataclass(kw_only=True)
class EpisodeRecord:
    """Everything that is kept of one episode. JSON in the journal; columns and one JSON blob in HDF5.

    Attributes:
        trial: identity.
        outcome: pass, fail or void.
        reward: in [0, 1]; NaN when void.
        domain: the task's domain (`stateward.tasks.Task.domain`).
        fault_kind / fault_cause: set if and only if void.
        finish: why the conversation ended: done, end_turn_tool, user_done, user_limit, agent_limit, no_user,
            length (the context was full), fault.
        failure: of a failed check: {file, line, text, message}.
        grading: {isolation: what kept the check from network and processes, prints: its output, judge: [{question,
            answer}], metadata: what it wrote into ``x.metadata``}; without what is empty.
        turns: assistant turns; tool_calls: calls made; tool_errors: calls that the tool or the interpreter refused.
        problems: what renderer and interpreter noticed, counted: {"call_in_thinking": 1, "bad_arguments": 2, ...}.
        usage: by party: policy, user, judge.
        seconds: wall clock by phase: total, sample, tools, user, open, grade.
        started: Unix time.
        seed: the sampling seed that was used.
        initial_state_hash: of the world before the first message; final_state: {server: state}.
        state_diff: what differs between initial and final state, as [path, before, after] rows.
        messages: the conversation as chat messages, with reasoning and tool calls.
        tokens: {"ids": [...], "mask": [...], "logprobs": [...]} of the policy's ledger, or empty.
        attempt: 1 for the first run of this trial, counted up when a void is run again.
    """

    trial: Trial
    outcome: Outcome
    reward: float
    domain: str = ""
    fault_kind: str = ""
    fault_cause: str = ""
    finish: str = ""
    failure: dict[str, Any] = field(default_factory=dict)
    grading: dict[str, Any] = field(default_factory=dict)
    turns: int = 0
    tool_calls: int = 0
    tool_errors: int = 0
    problems: dict[str, int] = field(default_factory=dict)
    usage: dict[str, Usage] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    started: float = 0.0
    seed: int = 0
    initial_state_hash: str = ""
    final_state: dict[str, Any] = field(default_factory=dict)
    state_diff: list[list[Any]] = field(default_factory=list)
    messages: list[dict[str, Any]] = field(default_factory=list)
    tokens: dict[str, list[Any]] = field(default_factory=dict)
    attempt: int = 1

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready dict that shares its lists and dicts with the record; NaN reward becomes None."""
        out = {**vars(self), "trial": asdict(self.trial), "usage": {k: asdict(v) for k, v in self.usage.items()}}
        out["outcome"] = self.outcome.value
        out["reward"] = None if self.reward != self.reward else self.reward
        return out

    def lost(self, error: Exception) -> EpisodeRecord:
        """The void that stands for this record, which no journal can hold because of `error`."""
        return EpisodeRecord(
            trial=self.trial,
            outcome=Outcome.VOID,
            reward=float("nan"),
            domain=self.domain,
            fault_kind="bug",
            fault_cause=f"the record cannot be stored: {type(error).__name__}: {error}",
            finish="fault",
            started=self.started,
            seed=self.seed,
            attempt=self.attempt,
        )

    @classmethod
    def from_json(cls, row: dict[str, Any]) -> EpisodeRecord:
        """Inverse of `to_json`; raises KeyError or TypeError on a row of another shape."""
        row = dict(row)
        row["trial"] = Trial(**row["trial"])
        row["outcome"] = Outcome(row["outcome"])
        row["reward"] = float("nan") if row["reward"] is None else float(row["reward"])
        row["usage"] = {k: Usage(**v) for k, v in row.get("usage", {}).items()}
        return cls(**row)
