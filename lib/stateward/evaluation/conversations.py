"""Conversations small enough for one page: shortened texts, each distinct text once a task, compressed.

A page of 15 MB cannot hold 10,140 conversations of 50 KB whole. Every trial keeps its course, its failing line and its
state difference; long texts are cut in the middle, and say by how much. How much a trial keeps is the first of
`LEVELS` with which all of them fit into three quarters of the room. The rest goes to whole conversations, of the tasks
whose reliability changed first.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from stateward.evaluation.run import Run
from stateward.outcome import EpisodeRecord


@dataclass(frozen=True, kw_only=True)
class Level:
    """What is kept of a conversation.

    `limit`: characters of one text (a message, its reasoning, a call's arguments, a value of the state); None: whole.
    `course`: ``full``; ``outline`` leaves out reasoning, arguments and tool results; ``none`` leaves out messages.
    """

    limit: int | None
    course: str = "full"


LEVELS = (
    *(Level(limit=n) for n in (None, 8_000, 4_000, 2_000, 1_000, 500, 250, 120, 60, 30)),
    Level(limit=60, course="outline"),
    Level(limit=30, course="none"),
)
_SHARE = 0.75  # of the room, for what every trial keeps
_SAMPLE = 12  # tasks that are packed to estimate a limit
_ROWS = 40  # rows of a state difference, where texts are cut
_ROLES = {"system": "s", "user": "u", "assistant": "a", "tool": "t"}


@dataclass(kw_only=True)
class Packed:
    """Blocks for the page: element id → base64 of deflated JSON. `whole` counts conversations kept whole besides."""

    level: Level
    blocks: dict[str, str] = field(default_factory=dict)
    whole: int = 0

    @property
    def size(self) -> int:
        return sum(map(len, self.blocks.values()))


def pack(runs: Sequence[Run], uids: Sequence[str], budget: int, *, directory: str, first: Sequence[str] = ()) -> Packed:
    """Pack the trials of `uids` in all `runs` into at most `budget` bytes of base64.

    Args:
        directory: the run directory as the page's hints name it.
        first: tasks whose conversations are kept whole first, if room is left.
    """
    source = _Source(runs, uids, directory)
    at = _first_guess(source, budget)
    while True:
        share = budget if at == 0 or at == len(LEVELS) - 1 else budget * _SHARE
        packed = Packed(level=LEVELS[at])
        for n in range(len(uids)):
            packed.blocks[f"t{n}"] = _pack(source.task(n, packed.level))
            if packed.size > share and at < len(LEVELS) - 1:
                break
        else:
            break
        at += 1
    if at > 0:
        _add_whole(packed, source, [uids.index(uid) for uid in first if uid in uids], budget)
    return packed


def shorten(text: str, limit: int | None) -> str:
    """`text`, or its beginning and end with the number of characters between them that were left out."""
    if limit is None or len(text) <= limit + 30:
        return text
    head = limit * 2 // 3
    tail = limit - head
    return f"{text[:head]}⟪… {len(text) - limit:,} characters …⟫{text[len(text) - tail :]}"


class _Source:
    """Reads the records of a task, in all runs, when they are asked for."""

    def __init__(self, runs: Sequence[Run], uids: Sequence[str], directory: str) -> None:
        self.runs, self.uids, self.directory = runs, uids, directory
        self._rows = [_rows_by_uid(run) for run in runs]

    def records(self, n: int) -> Iterator[tuple[int, EpisodeRecord]]:
        """(run, record) of the task at position `n`."""
        for r, run in enumerate(self.runs):
            for record in run.records.select(self._rows[r].get(self.uids[n].encode(), [])):
                yield r, record

    def task(self, n: int, level: Level) -> dict[str, Any]:
        """The block of one task, JSON-ready."""
        pool = _Pool(level.limit)
        talks = [talk(record, r, pool, level) for r, record in self.records(n)]
        return {
            "uid": self.uids[n],
            "dir": self.directory,
            "runs": [run.label for run in self.runs],
            "facts": [self._facts(n, r) for r in range(len(self.runs))],
            "cut": "" if level == LEVELS[0] else level.course,
            "talks": talks,
            "pool": pool.texts,
        }

    def _facts(self, n: int, r: int) -> list[list[Any]]:
        rows = self._rows[r].get(self.uids[n].encode(), [])
        c = self.runs[r].records.columns
        names = ("index", "outcome", "turns", "tool_calls", "policy_completion", "seconds_total", "finish", "attempt")
        table = zip(*(c[name][rows].tolist() for name in names), strict=True)
        return sorted(
            [i, outcome.decode()[0], turns, calls, tokens, round(seconds, 1), finish.decode(), attempt]
            for i, outcome, turns, calls, tokens, seconds, finish, attempt in table
        )


class _Pool:
    """Distinct texts of one block, by position: 20 trials share a system prompt and many tool results."""

    def __init__(self, limit: int | None) -> None:
        self.limit = limit
        self.texts: list[str] = []
        self._at: dict[str, int] = {}

    def add(self, text: str) -> int:
        text = shorten(text, self.limit)
        if text not in self._at:
            self._at[text] = len(self.texts)
            self.texts.append(text)
        return self._at[text]


def talk(record: EpisodeRecord, run: int, pool: _Pool, level: Level) -> dict[str, Any]:
    """One conversation: r run, i index, m messages, d state difference, dn rows left out, f failure, x fault."""
    limit = level.limit
    rows = record.state_diff if limit is None else record.state_diff[:_ROWS]
    f = record.failure
    failure = None
    if f:
        place = f"{f.get('file', '?')}:{f.get('line', '?')}"
        failure = [place, *(shorten(_text(f.get(part, "")), limit and max(limit, 200)) for part in ("text", "message"))]
    fault = f"{record.fault_kind}: {record.fault_cause}" if record.fault_kind else ""
    return {
        "r": run,
        "i": record.trial.index,
        "m": [] if level.course == "none" else [_message(m, pool, level) for m in record.messages],
        "d": [[shorten(_text(value), limit) for value in row] for row in rows],
        "dn": len(record.state_diff) - len(rows),
        "f": failure,
        "x": shorten(fault, limit and max(limit, 400)),
    }


def _message(m: dict[str, Any], pool: _Pool, level: Level) -> list[Any]:
    """[role, content, reasoning, [[name, arguments], …], tool's name]; texts by their position in the pool."""
    role = str(m.get("role"))
    content, reasoning = m.get("content"), m.get("reasoning_content") or m.get("reasoning")
    full = level.course == "full"
    kept = bool(content) and (full or role != "tool")
    calls = [c.get("function", c) for c in m.get("tool_calls") or ()]
    return [
        _ROLES.get(role, role),
        pool.add(_text(content)) if kept else None,
        pool.add(_text(reasoning)) if reasoning and full else None,
        [[str(c.get("name", "?")), pool.add(_text(c.get("arguments", {})) if full else "…")] for c in calls],
        str(m.get("name") or "") if role == "tool" else "",
    ]


def _first_guess(source: _Source, budget: int) -> int:
    """Position in `LEVELS` of the first that fits, judged by some tasks."""
    sample = np.unique(np.linspace(0, len(source.uids) - 1, min(_SAMPLE, len(source.uids))).astype(int))
    for at, level in enumerate(LEVELS):
        size = sum(len(_pack(source.task(int(n), level))) for n in sample)
        if size * len(source.uids) / len(sample) <= (budget * _SHARE if at else budget):
            return at
    return len(LEVELS) - 1


def _add_whole(packed: Packed, source: _Source, order: Sequence[int], budget: int) -> None:
    """Fill the room that is left with whole conversations, one more of each task a round, in `order`: a pass and a
    failure of each run, of the last run first."""
    room = budget - packed.size
    for turn in range(2 * len(source.runs)):
        for n in order:
            kinds: dict[tuple[int, str], EpisodeRecord] = {}
            for r, record in source.records(n):
                kinds.setdefault((r, record.outcome.value), record)
            chosen = sorted(kinds, key=lambda kind: (-kind[0], kind[1]))
            if turn >= len(chosen):
                continue
            r, _ = chosen[turn]
            record = kinds[chosen[turn]]
            pool = _Pool(None)
            block = _pack({"talks": [talk(record, r, pool, LEVELS[0])], "pool": pool.texts})
            if len(block) > room:
                return
            packed.blocks[f"w{n}-{r}-{record.trial.index}"] = block
            packed.whole += 1
            room -= len(block) + 100  # and its element


def _rows_by_uid(run: Run) -> dict[bytes, list[int]]:
    found: dict[bytes, list[int]] = {}
    for row, uid in enumerate(run.records.columns["uid"].tolist()):
        found.setdefault(uid, []).append(row)
    return found


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _pack(value: dict[str, Any]) -> str:
    # Half a surrogate pair has no UTF-8; it is shown as its escape.
    data = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "backslashreplace")
    return base64.b64encode(zlib.compress(data, 9)).decode()
