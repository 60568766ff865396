"""Counts from JSONL that was written elsewhere: one trial a row, or one task's counts a row."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

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
    read = reader.count_row if names.passes else reader.trial_row
    try:
        with open(path, "rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
            file.seek(0)
            for line, row in _rows(path, file):
                read(line, row)
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


def _rows(path: Path, file: Any) -> Iterator[tuple[int, dict[str, Any]]]:
    loads = orjson.loads
    for line, text in enumerate(file, 1):
        try:
            row = loads(text)
        except orjson.JSONDecodeError as error:
            if not text.strip():
                continue
            raise UserError(f"{path}:{line}: not JSON", str(error), "each line must be one JSON object") from None
        if type(row) is not dict:
            raise UserError(f"{path}:{line}: holds {_kind(row)}", "each line must be one JSON object")
        yield line, row


class _Reader:
    def __init__(self, path: Path, names: FieldsConfig, what: str) -> None:
        self.path, self.names, self.what = path, names, what
        self.tasks: dict[str, TaskCounts] = {}
        self.rows = 0
        self.policy: str | None = None
        self._policy_line = 0
        self._seen: dict[tuple[str, int], int] = {}
        self._uid, self._success = _getter(names.uid), _getter(names.success)
        self._error, self._domain, self._policy = map(_getter, (names.system_error, names.domain, names.policy))
        self._trial, self._passes, self._trials = map(_getter, (names.trial, names.passes, names.trials))

    def trial_row(self, line: int, row: dict[str, Any]) -> None:
        """One trial. A void needs no `success`."""
        task = self._task(line, row)
        self.rows += 1
        if self.names.trial:
            self._refuse_twice(line, row, task.uid)
        error = self._error(row)
        if error is not _ABSENT and error is not None and error is not False:
            if error is not True and type(error) is not str:
                raise self._wrong(line, self.names.system_error, error, "true, false, null or a text")
            if error:
                task.voids += 1
                return
        success = self._success(row)
        if success is True:
            task.passes += 1
        elif success is not False:
            if success is _ABSENT:
                raise self._missing(line, row, "success")
            if type(success) not in (int, float) or not 0 <= success <= 1:
                raise self._wrong(line, self.names.success, success, "true, false or a reward in [0, 1]")
            task.passes += success == 1
        task.valid += 1

    def count_row(self, line: int, row: dict[str, Any]) -> None:
        """One task's counts; a task has one row."""
        known = len(self.tasks)
        task = self._task(line, row)
        if len(self.tasks) == known:
            raise UserError(f"{self.path}:{line}: task {task.uid!r} has counts already", do="give each task one row")
        numbers = []
        for name, get in ((self.names.passes, self._passes), (self.names.trials, self._trials)):
            value = get(row)
            if value is _ABSENT:
                raise self._missing(line, row, "passes" if name == self.names.passes else "trials")
            if type(value) is not int or value < 0:
                raise self._wrong(line, name, value, "a count")
            numbers.append(value)
        task.passes, task.valid = numbers
        if task.passes > task.valid:
            raise UserError(
                f"{self.path}:{line}: task {task.uid!r} has {task.passes} passes of {task.valid} trials",
                "there cannot be more passes than trials",
                f"check which of {self.names.passes!r} and {self.names.trials!r} counts what",
            )
        self.rows += task.valid

    def _task(self, line: int, row: dict[str, Any]) -> TaskCounts:
        uid = self._uid(row)
        if type(uid) is not str or not uid:
            if uid is _ABSENT:
                raise self._missing(line, row, "uid")
            raise self._wrong(line, self.names.uid, uid, "a text that is not empty")
        policy = self._policy(row)
        if policy is not _ABSENT and policy != self.policy:
            self._check_policy(line, policy)
        task = self.tasks.get(uid)
        if task is None:
            task = self.tasks[uid] = TaskCounts(uid)
            domain = self._domain(row)
            if domain is not _ABSENT and domain is not None:
                if type(domain) is not str:
                    raise self._wrong(line, self.names.domain, domain, "a text")
                task.domain = domain
        return task

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

    def _refuse_twice(self, line: int, row: dict[str, Any], uid: str) -> None:
        index = self._trial(row)
        if index is _ABSENT:
            raise self._missing(line, row, "trial")
        if type(index) is not int:
            raise self._wrong(line, self.names.trial, index, "an integer")
        first = self._seen.setdefault((uid, index), line)
        if first != line:
            raise UserError(
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
