"""What Verl reads as its data set: one row a task, with the uid and nothing else that matters.

The prompt column is a stand-in. The worker loads the task by its uid and renders it with the suite's own renderer, so
that training sees the very tokens that probing and evaluation see.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from pathlib import Path

from pydantic import TypeAdapter

from stateward.errors import UserError
from stateward.tasks.task import Task


def write_dataset(path: Path, tasks: Sequence[Task]) -> None:
    """Write the parquet file for `tasks`, in their order; atomically, as a resumed run may be reading the old one."""
    import pyarrow
    import pyarrow.parquet

    rows = [
        {
            "prompt": [{"role": "user", "content": task.uid}],
            "data_source": "stateward",
            "extra_info": {"index": number, "task": task.uid},
        }
        for number, task in enumerate(tasks)
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), temporary)
    os.replace(temporary, path)


def write_tasks(path: Path, tasks: Sequence[Task]) -> None:
    """The hydrated tasks for the workers, so that every one of them sees what was checked.

    JSON, as whoever may write into the folder could otherwise run code in the workers. For the owner's eyes alone:
    headers and environment of tool servers may hold tokens.

    Raises:
        UserError: a task holds a value that JSON does not have.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    temporary.unlink(missing_ok=True)
    by_uid = {task.uid: task for task in tasks}
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(_tasks().dump_json(by_uid))
    if changed := [uid for uid, task in read_tasks(temporary).items() if task != by_uid[uid]]:
        temporary.unlink()
        raise UserError(
            f"task {changed[0]} holds a value that JSON does not have",
            "the workers of the training read the tasks as JSON; a date, NaN and bytes do not survive that",
            "write the value as text in the dataset's YAML",
        )
    os.replace(temporary, path)


def read_tasks(path: Path) -> dict[str, Task]:
    """Tasks by uid, as `write_tasks` wrote them."""
    return _tasks().validate_json(path.read_bytes())


@functools.cache
def _tasks() -> TypeAdapter[dict[str, Task]]:
    return TypeAdapter(dict[str, Task])


def check_pool(tasks: Sequence[Task], groups_per_step: int) -> None:
    """Refuse a pool that cannot fill a step.

    Raises:
        UserError: the pool is empty, has a task twice, or is smaller than one step.
    """
    if not tasks:
        raise UserError(
            "the training pool is empty", "no task was kept", "look at pool/difficulty.jsonl, widen the bands"
        )
    uids = [task.uid for task in tasks]
    twice = sorted({uid for uid in uids if uids.count(uid) > 1})
    if twice:
        raise UserError(f"the training pool has tasks twice: {', '.join(twice[:5])}", do="remove the repetitions")
    if len(uids) < groups_per_step:
        raise UserError(
            f"train.groups_per_step={groups_per_step} is more than the pool's {len(uids)} tasks",
            "a step takes its groups from different tasks, and an epoch must hold at least one step",
            f"set train.groups_per_step to {len(uids)} or less, or widen the pool",
        )
