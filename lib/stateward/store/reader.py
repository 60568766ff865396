"""One reader over a stage's directory: sealed shards and open journals, exactly one record per trial key."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from stateward.errors import UserError
from stateward.outcome import EpisodeRecord, Outcome, Trial, Usage
from stateward.store.journal import read_journal
from stateward.store.shard import (
    COLUMNS,
    PARTIES,
    PHASES,
    TOKEN_KINDS,
    Column,
    make_columns,
    read_blobs,
    read_columns,
    row_columns,
)

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Duplicate:
    """Two different runs of one trial, both valid. One is kept; that there are two means that something ran twice."""

    key: str
    kept: str  # file name of the record that is kept
    dropped: str


@dataclass
class Records:
    """The records of a stage, one per trial key, sorted by (uid, index, policy, settings).

    Iterating yields `EpisodeRecord`s, read from disk one at a time. With `columns_only` they carry the columns alone:
    messages, states, tokens, causes and failures are empty, and the blobs are never read.

    Attributes:
        columns: each [n], see `stateward.store.shard.COLUMNS`; text is UTF-8 bytes (dtype S).
        duplicates: valid records dropped because another valid record of the same trial was kept.
        superseded: voids dropped because the trial was run again.
        dropped: columns of the duplicates and superseded voids; they took tokens and time too.
        copies: records found twice, as after a sealing that was killed before it removed its journal.
        torn, damaged: journal lines that were dropped (see `JournalReader`).
    """

    columns: dict[str, Column]
    duplicates: list[Duplicate] = field(default_factory=list)
    superseded: int = 0
    dropped: dict[str, Column] = field(default_factory=lambda: make_columns([]))
    copies: int = 0
    torn: int = 0
    damaged: int = 0
    columns_only: bool = False
    _files: list[Path] = field(default_factory=list, repr=False)
    _file: Column = field(default_factory=lambda: np.empty(0, "i8"), repr=False)  # [n] index into _files
    _row: Column = field(default_factory=lambda: np.empty(0, "i8"), repr=False)  # [n] position in that file

    def __len__(self) -> int:
        return len(self.columns["uid"])

    def __iter__(self) -> Iterator[EpisodeRecord]:
        return self.select(range(len(self)))

    def select(self, positions: Any) -> Iterator[EpisodeRecord]:
        """The records at these positions of `columns`. The order is that of the files, for few seeks."""
        chosen = np.asarray(list(positions), "i8")
        if self.columns_only:
            yield from (self._from_columns(int(i)) for i in chosen)
            return
        for f in np.unique(self._file[chosen]):
            here = chosen[self._file[chosen] == f]
            here = here[np.argsort(self._row[here])]
            try:
                yield from map(EpisodeRecord.from_json, _rows_at(self._files[f], self._row[here].tolist()))
            except FileNotFoundError:  # a journal that was sealed since; its records stand in a shard now
                trials = self.trials()
                wanted = {trials[i] for i in here}
                again = read_records(self._files[f].parent)
                yield from again.select(i for i, trial in enumerate(again.trials()) if trial in wanted)

    def find(self, uid: str, index: int) -> list[EpisodeRecord]:
        """The whole records of trial `index` of task `uid`: one per policy and settings."""
        hit = (self.columns["uid"] == uid.encode()) & (self.columns["index"] == index)
        return list(self.select(np.flatnonzero(hit)))

    def trials(self, positions: Column | None = None) -> list[Trial]:
        """The trials at these positions (all, if None), in order."""
        names = ("uid", "index", "policy", "settings")
        columns = [self.columns[n] if positions is None else self.columns[n][positions] for n in names]
        return [
            Trial(uid=u.decode(), index=i, policy=p.decode(), settings=s.decode())
            for u, i, p, s in zip(*(c.tolist() for c in columns), strict=True)
        ]

    def _from_columns(self, i: int) -> EpisodeRecord:
        c = {name: _plain(column[i]) for name, column in self.columns.items()}
        usage = {p: Usage(**{k: c[f"{p}_{k}"] for k in TOKEN_KINDS}) for p in PARTIES}
        return EpisodeRecord(
            trial=Trial(uid=c["uid"], index=c["index"], policy=c["policy"], settings=c["settings"]),
            outcome=Outcome(c["outcome"]),
            usage={p: u for p, u in usage.items() if u != Usage()},
            seconds={p: c[f"seconds_{p}"] for p in PHASES},
            **{name: c[name] for name in _SAME_NAME},
        )


_SAME_NAME = [n for n in COLUMNS if n in EpisodeRecord.__dataclass_fields__ and n not in ("outcome", "usage")]


#: What is read in any case: the identity of a trial, and what decides which of its records counts.
KEY_COLUMNS = ("uid", "index", "policy", "settings", "outcome", "attempt", "started")


def read_records(
    stage_dir: Path | str, *, columns_only: bool = False, columns: Collection[str] | None = None
) -> Records:
    """All records of a stage: of ``stage_dir/shards/`` (or of `stage_dir` itself, if it has no such folder).

    Of several records of one trial a non-void beats a void, then the later attempt wins, then the later start.
    The directory may be written meanwhile: journals are read before the shards are listed, and a journal is only
    removed after its shard stands, so no record is missed.

    Args:
        columns: read these and `KEY_COLUMNS` alone, for millions of records in little memory; implies `columns_only`,
            and the records cannot be iterated over.

    Raises:
        UserError: `stage_dir` is not there.
        OSError: a shard is damaged.
    """
    stage_dir = Path(stage_dir)
    if not stage_dir.is_dir():
        raise UserError(f"{stage_dir}: no such directory", do="name a stage's directory, such as RUN_DIR/eval/base")
    folder = stage_dir / "shards" if (stage_dir / "shards").is_dir() else stage_dir
    names = [n for n in COLUMNS if columns is None or n in columns or n in KEY_COLUMNS]
    files: list[Path] = []
    parts: list[dict[str, Column]] = []
    torn = damaged = 0
    for path in sorted(folder.glob("*.jsonl")):
        reader = read_journal(path)
        try:
            values = [row_columns(row) for row in reader]
        except FileNotFoundError:  # sealed since it was listed; its shard is read below
            continue
        torn, damaged = torn + reader.torn, damaged + reader.damaged
        files.append(path)
        made = make_columns(values)
        parts.append({n: made[n] for n in names})
    for path in sorted(folder.glob("*.h5")):
        files.append(path)
        parts.append(read_columns(path, names))
    if damaged:
        _LOG.warning("%s: %d damaged journal lines skipped; their trials count as not run", folder, damaged)
    lengths = [len(p["uid"]) for p in parts]
    # Each part is let go as it is joined: with both held, a million records would take a gigabyte.
    joined = {n: np.concatenate([p.pop(n) for p in parts]) for n in names} if parts else make_columns([])
    file_of = np.repeat(np.arange(len(files)), lengths)
    row_of = np.concatenate([np.arange(n) for n in lengths]) if lengths else np.empty(0, "i8")
    keep, records = _one_per_key(joined, file_of, files)
    records.columns = {n: joined.pop(n)[keep] for n in list(joined)}
    records.torn, records.damaged = torn, damaged
    records.columns_only = columns_only or columns is not None
    records._files, records._file, records._row = files, file_of[keep], row_of[keep]
    return records


def _one_per_key(columns: dict[str, Column], file_of: Column, files: list[Path]) -> tuple[Column, Records]:
    """Positions to keep, in key order, and a `Records` that counts what was dropped."""
    records = Records(columns=columns)
    valid = columns["outcome"] != b"void"
    names = ("uid", "index", "policy", "settings")
    # Within a key the best record comes last. A column that never changes (policy and settings, mostly) sorts nothing.
    keys = (columns["started"], columns["attempt"], valid, *(columns[n] for n in reversed(names)))
    varying = [key for key in keys if (key != key[:1]).any()]
    order = np.lexsort(varying) if varying else np.arange(len(valid))
    if len(order) < 2:
        return order, records
    same = np.ones(len(order) - 1, bool)
    for name in names:
        ordered = columns[name][order]
        same &= ordered[1:] == ordered[:-1]
    keep = order[np.append(~same, True)]
    dropped: list[int] = []
    for at in np.flatnonzero(same):
        i, j = order[at], order[at + 1]
        if all(columns[n][i] == columns[n][j] for n in ("attempt", "started", "outcome")):
            records.copies += 1
            continue
        dropped.append(int(i))
        if valid[i]:
            key = Trial(**{n: _plain(columns[n][i]) for n in names}).key
            records.duplicates.append(Duplicate(key, files[file_of[j]].name, files[file_of[i]].name))
        else:
            records.superseded += 1
    records.dropped = {name: column[dropped] for name, column in columns.items()}
    if records.duplicates:
        _LOG.warning("%d trials have more than one valid record, such as %s", len(records.duplicates), key)
    return keep, records


def _rows_at(path: Path, rows: list[int]) -> Iterator[dict[str, Any]]:
    if path.suffix == ".h5":
        yield from read_blobs(path, rows)
        return
    wanted = set(rows)
    yield from (row for i, row in enumerate(read_journal(path)) if i in wanted)


def _plain(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value.item()
