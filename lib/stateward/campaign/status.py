"""Where a campaign stands, from its markers, plans and journals alone: no scheduler is asked."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stateward.campaign.layout import RunDir
from stateward.errors import UserError
from stateward.store import read_records

_STAGE_ORDER = ("probe", "pool", "train", "merged", "eval", "report")


@dataclass(frozen=True, kw_only=True)
class StageState:
    """One line of the status: `state` is ``not begun``, ``in part`` or ``done``; `detail` says how far."""

    name: str
    state: str
    detail: str = ""


def stage_states(run_dir: Path) -> Iterator[StageState]:
    """The states of all stages in the order of the campaign.

    Raises:
        UserError: there is no such run directory.
    """
    if not run_dir.is_dir():
        raise UserError(f"{run_dir}: no such run directory", do="name the one that the stages were called with")
    run = RunDir(run_dir)
    for name in _STAGE_ORDER:
        if name == "eval":
            labels = sorted(p for p in (run_dir / "eval").glob("*") if p.is_dir()) or [run_dir / "eval" / "base"]
            for path in labels:
                yield _sampling_state(f"eval/{path.name}", path)
        elif name == "probe":
            yield _sampling_state(name, run.probe)
        elif name == "train":
            yield _train_state(run.train)
        else:
            yield _plain_state(name, run_dir / name)


def _plain_state(name: str, path: Path) -> StageState:
    if (path / "DONE").is_file():
        return StageState(name=name, state="done", detail=_when(path / "DONE"))
    return StageState(name=name, state="in part" if path.is_dir() else "not begun")


def _sampling_state(name: str, path: Path) -> StageState:
    plain = _plain_state(name, path)
    if plain.state == "not begun":
        return plain
    planned = 0
    for file in sorted((path / "plan").glob("shard-*.json")):
        spec = json.loads(file.read_text())
        planned += len(spec["uids"]) * spec["trials"]
    outcomes = {"pass": 0, "fail": 0, "void": 0}
    last = 0.0
    for record in read_records(path, columns_only=True):
        outcomes[record.outcome.value] += 1
        last = max(last, record.started)
    detail = f"{sum(outcomes.values())} of at most {planned} trials: "
    detail += ", ".join(f"{number} {outcome}" for outcome, number in outcomes.items())
    if plain.state == "in part" and last:
        detail += f"; last episode began {time.time() - last:.0f} s ago"
    return StageState(name=name, state=plain.state, detail=detail)


def _train_state(path: Path) -> StageState:
    plain = _plain_state("train", path)
    metrics = path / "metrics.jsonl"
    if plain.state == "not begun" or not metrics.is_file():
        return plain
    rows: list[dict[str, Any]] = [json.loads(line) for line in metrics.read_text().splitlines() if line.endswith("}")]
    if not rows:
        return plain
    step = rows[-1].get("step")
    return StageState(name="train", state=plain.state, detail=f"step {step} of the log's last line")


def _when(marker: Path) -> str:
    return time.strftime("since %Y-%m-%d %H:%M", time.localtime(marker.stat().st_mtime))
