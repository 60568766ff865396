"""What Verl reads as its data set: one row a task, with the uid and nothing else that matters.

The prompt column is a stand-in. The worker loads the task by its uid and renders it with the suite's own renderer, so
that training sees the very tokens that probing and evaluation see.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Sequence
from pathlib import Path

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
    """The hydrated tasks for the workers, so that every one of them sees what was checked."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    temporary.write_bytes(pickle.dumps({task.uid: task for task in tasks}))
    os.replace(temporary, path)


def read_tasks(path: Path) -> dict[str, Task]:
    """Tasks by uid. Only ever reads what `write_tasks` of the same run wrote: a pickle is code."""
    tasks: dict[str, Task] = pickle.loads(path.read_bytes())
    return tasks


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
