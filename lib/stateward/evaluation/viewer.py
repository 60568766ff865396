"""One episode in the terminal: the conversation, calls, results, the check's failing line, the state difference."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from typing import Any

from stateward.outcome import EpisodeRecord

_WIDTH = 80


def episode_text(record: EpisodeRecord, label: str) -> str:
    """The whole episode as text of at most 80 columns; lines of tool output and code are folded, never cut."""
    return "\n".join(_lines(record, label))


def _lines(record: EpisodeRecord, label: str) -> Iterator[str]:
    t = record.trial
    yield from _fold(f"{label}: {t.uid} trial {t.index}")
    verdict = f"{record.outcome.value}, reward {record.reward:g}" if record.reward == record.reward else "void"
    yield f"{verdict}; ended: {record.finish or 'unknown'}; attempt {record.attempt}, seed {record.seed}"
    policy = record.usage.get("policy")
    tokens = f", {policy.prompt:,} prompt and {policy.completion:,} completion tokens" if policy else ""
    yield f"turns {record.turns}, tool calls {record.tool_calls}{tokens}, {record.seconds.get('total', 0.0):.1f} s"
    if record.problems:
        yield "noticed: " + ", ".join(f"{name} × {n}" for name, n in record.problems.items())
    yield ""
    for message in record.messages:
        yield from _message(message)
    if record.fault_kind:
        yield _rule(f"system fault: {record.fault_kind}")
        yield from _fold(record.fault_cause)
    if record.failure:
        yield _rule("the check failed")
        f = record.failure
        if f.get("file") or f.get("line"):
            yield f"{f.get('file', '?')}:{f.get('line', '?')}"
        yield from _fold(str(f.get("text", "")), "  > ")
        yield from _fold(str(f.get("message", "")))
    yield _rule(
        f"state difference ({len(record.state_diff)} rows)" if record.state_diff else "the state did not change"
    )
    for path, before, after in record.state_diff:
        yield from _fold(str(path))
        yield from _fold(_json(before), "  - ")
        yield from _fold(_json(after), "  + ")


def _message(message: dict[str, Any]) -> Iterator[str]:
    role = str(message.get("role", "?"))
    name = message.get("name") or message.get("tool_call_id")
    yield _rule(f"{role} {name}" if role == "tool" and name else role)
    reasoning = message.get("reasoning_content") or message.get("reasoning")
    if reasoning:
        yield from _fold(str(reasoning), "  ~ ")
    content = message.get("content")
    if content:
        yield from _fold(content if isinstance(content, str) else _json(content))
    for call in message.get("tool_calls") or []:
        function = call.get("function", call)
        arguments = function.get("arguments", {})
        text = arguments if isinstance(arguments, str) else _json(arguments)
        yield from _fold(f"{function.get('name', '?')}({text})", "  → ")


def _rule(title: str) -> str:
    return f"── {title} ".ljust(_WIDTH, "─")


def _fold(text: str, prefix: str = "") -> Iterator[str]:
    """Lines of at most 80 columns; only the space at a fold is lost."""
    for line in text.splitlines() or [""]:
        line = "".join(c if c.isprintable() or c == "\t" else f"\\x{ord(c):02x}" for c in line)
        parts = textwrap.wrap(line, _WIDTH - len(prefix), replace_whitespace=False, drop_whitespace=False) or [""]
        yield (prefix + parts[0]).rstrip()
        for part in parts[1:]:
            yield prefix + part.strip()


def _json(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
