"""Counts from a stage of ours: the journals and sealed shards of a probe."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from stateward.difficulty.counts import Counts, Source, TaskCounts, digest
from stateward.errors import UserError
from stateward.store import read_records
from stateward.store.starts import DO, WHY, mixed_starts

Column = npt.NDArray[Any]


def read_stage(path: Path, *, planned: int, what: str = "probe") -> Counts:
    """Counts of the stage directory `path` (or of ``path/probe`` if `path` is a run directory).

    Args:
        planned: valid trials planned a task, where the stage's manifest does not say.

    Raises:
        UserError: no records, records of two policies or two settings, or trials of a task that begin in different
            states.
    """
    stage = probe_stage(path)
    columns = read_records(stage, columns=("domain", "initial_state_hash")).columns
    uids = columns["uid"]  # sorted, as the reader promises
    if not len(uids):
        raise UserError(
            f"{stage}: no trials there", "neither journals nor shards hold a record", "run jobs/probe.py first"
        )
    policy = _only(columns["policy"], uids, stage, "policies", "difficulty is relative to one policy", what)
    settings = _only(
        columns["settings"], uids, stage, "settings", "their success rates are not the same quantity", what
    )
    valid = columns["outcome"] != b"void"
    begun = zip(uids[valid].tolist(), columns["initial_state_hash"][valid].tolist(), strict=True)
    if mixed := mixed_starts((uid.decode(), start.decode()) for uid, start in begun):
        raise UserError(f"{stage}: {len(mixed)} tasks begin in different states: {', '.join(mixed[:5])}", WHY, DO)
    plan = _plan(stage)
    planned = int(plan.get("trials", planned))
    starts = np.flatnonzero(np.append(True, uids[1:] != uids[:-1]))
    passes = np.add.reduceat(columns["outcome"] == b"pass", starts, dtype=np.int64)
    voids = np.add.reduceat(columns["outcome"] == b"void", starts, dtype=np.int64)
    total = np.diff(np.append(starts, len(uids)))
    tasks = {}
    for at, k, v, n in zip(starts.tolist(), passes.tolist(), voids.tolist(), total.tolist(), strict=True):
        uid = uids[at].decode()
        tasks[uid] = TaskCounts(uid, columns["domain"][at].decode(), k, n - v, v, max(planned, n - v))
    source = Source(
        path=str(path),
        kind="records",
        sha256=digest(_bytes(columns[name]) for name in ("uid", "index", "policy", "settings", "outcome")),
        rows=len(uids),
        tasks=len(tasks),
        policy=policy,
        settings=(settings,),
    )
    return Counts(policy=policy, tasks=tasks, sources=[source], plan=plan)


def probe_stage(path: Path) -> Path:
    """The stage's directory, where `path` may be its run directory."""
    return path / "probe" if (path / "probe").is_dir() else path


def _bytes(column: Column) -> bytes:
    # The itemsize of a text column depends on the longest text of the store, so it goes in first.
    return f"{column.dtype.str}:{len(column)};".encode() + np.ascontiguousarray(column).tobytes()


def _only(column: Column, uids: Column, stage: Path, name: str, why: str, what: str) -> str:
    other = np.flatnonzero(column != column[0])
    if len(other):
        at = int(other[0])
        raise UserError(
            f"{stage}: two {name} are mixed in one {what}: {column[0].decode()!r} (task {uids[0].decode()})"
            f" and {column[at].decode()!r} (task {uids[at].decode()})",
            why,
            "probe each into a run directory of its own",
        )
    return str(column[0].decode())


def _plan(stage: Path) -> dict[str, Any]:
    """What the stage's manifest says of its plan: trials, stop_rule, bands, bounded_error, population.

    Empty if there is no manifest; a key is absent where the manifest does not have it.
    """
    file = stage / "manifest.json"
    try:
        manifest = json.loads(file.read_text(encoding="utf-8"))
        inputs, probe = manifest["inputs"], manifest.get("config", {}).get("probe", {})
        plan = {"trials": int(inputs["trials"]), "stop_rule": str(inputs["stop_rule"])}
        plan |= {"bands": inputs["bands"]} if "bands" in inputs else {}
        return plan | {key: probe[key] for key in ("bounded_error", "population") if key in probe}
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(
            f"{file} is not the manifest of a sampling stage", repr(error), "restore it, or remove it"
        ) from error
