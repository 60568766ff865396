"""Counts from JSONL that was written elsewhere: one trial a row, or one task's counts a row."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from stateward.config import FieldsConfig
from stateward.difficulty.counts import Counts, Source, TaskCounts
from stateward.errors import UserError

Getter = Callable[[Any], Any]
_ABSENT: Any = object()


def read_jsonl(path: Path, names: FieldsConfig, *, what: str = "probe") -> Counts:
    """Counts of the file `path`. Blank lines are skipped; anything else that is not a row is refused.

    All trials of a file are the plan: a task's `planned` is its number of valid trials.

    Raises:
        UserError: with file and line: not JSON, no such field, a wrong type, more passes than trials, a task or trial
            that stands there twice, two policies.
    """
    if bool(names.passes) != bool(names.trials):
        raise UserError(
            "curate.fields needs both passes and trials, or neither",
            "a row of counts says how many of how many trials passed",
            "name both fields",
        )
    reader = _Reader(path, names, what)
    try:
        with open(path, "rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
            file.seek(0)
            if names.passes:
                reader.read_counts(file)
            else:
                reader.read_trials(file)
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})", do="name a readable file") from error
    tasks = reader.tasks
    if not tasks:
        raise UserError(f"{path}: no trials there", "the file has no rows", "name the file that the probe wrote")
    for task in tasks.values():
        task.planned = task.valid
    source = Source(
        path=str(path), kind="jsonl", sha256=sha256, rows=reader.rows, tasks=len(tasks), policy=reader.policy or ""
    )
    return Counts(policy=source.policy, tasks={uid: tasks[uid] for uid in sorted(tasks)}, sources=[source])


class _Reader:
    def __init__(self, path: Path, names: FieldsConfig, what: str) -> None:
        self.path, self.names, self.what = path, names, what
        self.tasks: dict[str, TaskCounts] = {}
        self.rows = 0
        self.policy: str | None = None
        self._policy_line = 0

    def read_trials(self, file: BinaryIO) -> None:
        """One trial a row. A void needs no `success`. The loop is plain for speed: a million rows in about a second."""
        names, tasks = self.names, self.tasks
        uid_of, success_of, error_of = _getter(names.uid), _getter(names.success), _getter(names.system_error)
        policy_of, index_of = _getter(names.policy), _getter(names.trial)
        seen: dict[str, set[int]] = {}
        for line, row in self._lines(file):
            self.rows += 1
            uid = uid_of(row)
            task = tasks.get(uid) if type(uid) is str else None
            if task is None:
                task = self._new_task(line, row, uid)
                seen[task.uid] = set()
            policy = policy_of(row)
            if policy is not _ABSENT and policy != self.policy:
                self._check_policy(line, policy)
            if names.trial:
                index = index_of(row)
                done = seen[task.uid]
                if type(index) is not int or index in done:
                    raise self._bad_trial(line, row, task.uid, index)
                done.add(index)
            error = error_of(row)
            if error is not _ABSENT and error is not None and error is not False and error != "":
                if error is not True and type(error) is not str:
                    raise self._wrong(line, names.system_error, error, "true, false, null or a text")
                task.voids += 1
                continue
            success = success_of(row)
            task.valid += 1
            if success is True:
                task.passes += 1
            elif success is not False:
                task.passes += self._reward(line, row, success) == 1

    def read_counts(self, file: BinaryIO) -> None:
        """One task's counts a row; a task has one row."""
        names = self.names
        uid_of, policy_of = _getter(names.uid), _getter(names.policy)
        for line, row in self._lines(file):
            uid = uid_of(row)
            if type(uid) is str and uid in self.tasks:
                raise UserError(f"{self.path}:{line}: task {uid!r} has counts already", do="give each task one row")
            task = self._new_task(line, row, uid)
            policy = policy_of(row)
            if policy is not _ABSENT and policy != self.policy:
                self._check_policy(line, policy)
            task.passes, task.valid = (self._count(line, row, field) for field in ("passes", "trials"))
            if task.passes > task.valid:
                raise UserError(
                    f"{self.path}:{line}: task {task.uid!r} has {task.passes} passes of {task.valid} trials",
                    "there cannot be more passes than trials",
                    f"check which of {names.passes!r} and {names.trials!r} counts what",
                )
            self.rows += task.valid

    def _lines(self, file: BinaryIO) -> Iterator[tuple[int, dict[str, Any]]]:
        loads = orjson.loads
        for line, text in enumerate(file, 1):
            try:
                row = loads(text)
            except orjson.JSONDecodeError as error:
                if not text.strip():
                    continue
                raise UserError(
                    f"{self.path}:{line}: not JSON", str(error), "each line must be one JSON object"
                ) from None
            if type(row) is not dict:
                raise UserError(f"{self.path}:{line}: holds {_kind(row)}", "each line must be one JSON object")
            yield line, row

    def _new_task(self, line: int, row: dict[str, Any], uid: Any) -> TaskCounts:
        if uid is _ABSENT:
            raise self._missing(line, row, "uid")
        if type(uid) is not str or not uid:
            raise self._wrong(line, self.names.uid, uid, "a text that is not empty")
        domain = _getter(self.names.domain)(row)
        if domain is _ABSENT or domain is None:
            domain = ""
        if type(domain) is not str:
            raise self._wrong(line, self.names.domain, domain, "a text")
        task = self.tasks[uid] = TaskCounts(uid, domain)
        return task

    def _reward(self, line: int, row: dict[str, Any], success: Any) -> float:
        if success is _ABSENT:
            raise self._missing(line, row, "success")
        if type(success) not in (int, float) or not 0 <= success <= 1:
            raise self._wrong(line, self.names.success, success, "true, false or a reward in [0, 1]")
        return float(success)

    def _count(self, line: int, row: dict[str, Any], field: str) -> int:
        name = getattr(self.names, field)
        value = _getter(name)(row)
        if value is _ABSENT:
            raise self._missing(line, row, field)
        if type(value) is not int or value < 0:
            raise self._wrong(line, name, value, "a count")
        return value

    def _check_policy(self, line: int, policy: Any) -> None:
        if policy is None:
            return
        if type(policy) is not str:
            raise self._wrong(line, self.names.policy, policy, "a text")
        if self.policy is not None:
            raise UserError(
                f"{self.path}:{line}: two policies are mixed in one {self.what}: {policy!r} here,"
                f" {self.policy!r} in line {self._policy_line}",
                "difficulty is relative to one policy; pooled counts describe neither",
                "split the file by policy",
            )
        self.policy, self._policy_line = policy, line

    def _bad_trial(self, line: int, row: dict[str, Any], uid: str, index: Any) -> UserError:
        if index is _ABSENT:
            return self._missing(line, row, "trial")
        if type(index) is not int:
            return self._wrong(line, self.names.trial, index, "an integer")
        uid_of, index_of = _getter(self.names.uid), _getter(self.names.trial)
        with open(self.path, "rb") as file:
            first = next(n for n, r in self._lines(file) if uid_of(r) == uid and index_of(r) == index)
        return UserError(
            f"{self.path}:{line}: trial {index} of task {uid!r} stands in line {first} already",
            "a trial counts once",
            "remove one of them",
        )

    def _missing(self, line: int, row: dict[str, Any], field: str) -> UserError:
        name = getattr(self.names, field)
        return UserError(
            f"{self.path}:{line}: no field {name!r}",
            f"the row's fields are {', '.join(_dotted(row)) or 'none'}",
            f"say curate.fields.{field}=NAME (dots reach into objects)",
        )

    def _wrong(self, line: int, name: str, value: Any, wanted: str) -> UserError:
        return UserError(f"{self.path}:{line}: {name!r} is {_kind(value)}", f"it must be {wanted}")


def _getter(name: str) -> Getter:
    """Reads a dotted field of a row; `_ABSENT` if it is not there, or if no field is named."""
    parts = name.split(".") if name else []
    if not parts:
        return lambda row: _ABSENT
    if len(parts) == 1:
        return lambda row: row.get(name, _ABSENT)

    def get(row: Any) -> Any:
        for part in parts:
            if type(row) is not dict:
                return _ABSENT
            row = row.get(part, _ABSENT)
        return row

    return get


def _dotted(row: dict[str, Any], prefix: str = "") -> list[str]:
    names: list[str] = []
    for key, value in row.items():
        names += _dotted(value, f"{prefix}{key}.") if isinstance(value, dict) and value else [f"{prefix}{key}"]
    return names


def _kind(value: Any) -> str:
    """A value as an error shows it: JSON, cut short."""
    text = orjson.dumps(value).decode()
    return text if len(text) <= 60 else text[:57] + "..."
