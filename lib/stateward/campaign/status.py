"""Where a campaign's stages stand, from their markers, plans and journals alone: no scheduler is asked."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from stateward.campaign.layout import RunDir
from stateward.errors import UserError
from stateward.store import read_records

#: Rates are those of the last half hour, so that a stage that was stopped for a night does not look slow, and are not
#: given where nothing ended for some minutes.
_WINDOW_SECONDS = 1_800.0
_STILL_SECONDS = 600.0
_STEPS = 5


@dataclass(frozen=True, kw_only=True)
class StageState:
    """One line of the status. `state`: ``not begun``, ``in part``, ``done`` or ``unreadable``; `detail`: how far."""

    name: str
    state: str
    detail: str = ""


def stage_states(run_dir: Path, now: float | None = None) -> Iterator[StageState]:
    """The states of all stages in the order of the campaign. `now`: Unix time.

    Raises:
        UserError: there is no such run directory.
    """
    if not run_dir.is_dir():
        raise UserError(f"{run_dir}: no such run directory", do="name the one that the stages were called with")
    now = time.time() if now is None else now
    yield _read(_sampling_state, "probe", RunDir(run_dir).probe, now)
    yield _read(_plain_state, "pool", run_dir / "pool")
    for training in _trainings(run_dir):
        yield _read(_train_state, f"{training}train", run_dir / training / "train", now)
        yield _read(_plain_state, f"{training}merged", run_dir / training / "merged")
    labels = sorted(p for p in (run_dir / "eval").glob("*") if p.is_dir()) or [run_dir / "eval" / "base"]
    for path in labels:
        yield _read(_sampling_state, f"eval/{path.name}", path, now)
    yield _read(_plain_state, "report", run_dir / "report")


def _read(state: Callable[..., StageState], name: str, path: Path, *more: float) -> StageState:
    """The state of a stage. One that cannot be read is a line of the page, which shows the others all the same."""
    try:
        return state(name, path, *more)
    except (OSError, UserError, ValueError) as error:  # no right to read it; a damaged shard; half a line of JSON
        words = " ".join(str(error).split())
        return StageState(name=name, state="unreadable", detail=f"{path}: {words}")


def _trainings(run_dir: Path) -> list[str]:
    """Prefixes of the campaign's trainings: none for the campaign itself, ``seeds/K/`` for those of several."""
    numbers = {path.name for path in (run_dir / "seeds").glob("*") if path.name.isdigit()}
    record = run_dir / "slurm" / "chain.json"
    links = json.loads(record.read_text()) if record.is_file() else {}
    numbers |= {name.removeprefix("train-seed") for name in links if name.startswith("train-seed")}
    alone = [""] if not numbers or (run_dir / "train").is_dir() else []
    return [*alone, *(f"seeds/{number}/" for number in sorted(numbers, key=int))]


def open_shards(stage: Path) -> list[int]:
    """Numbers of the planned shards of a sampling stage that no process has sealed yet, or left a journal of."""
    shards = stage / "shards"
    return [
        number
        for number in (int(path.stem.partition("-")[2]) for path in sorted((stage / "plan").glob("shard-*.json")))
        if any(shards.glob(f"{number:04d}-*.jsonl")) or not any(shards.glob(f"{number:04d}-*.h5"))
    ]


def _plain_state(name: str, path: Path) -> StageState:
    if (path / "DONE").is_file():
        return StageState(name=name, state="done", detail=_when(path / "DONE"))
    return StageState(name=name, state="in part" if path.is_dir() else "not begun")


def _sampling_state(name: str, path: Path, now: float) -> StageState:
    plain = _plain_state(name, path)
    if plain.state == "not begun":
        return plain
    planned = 0
    for file in sorted((path / "plan").glob("shard-*.json")):
        spec = json.loads(file.read_text())
        planned += len(spec["uids"]) * spec["trials"]
    outcomes = {"pass": 0, "fail": 0, "void": 0}
    ends = []
    if (path / "shards").is_dir():
        for record in read_records(path, columns_only=True):
            outcomes[record.outcome.value] += 1
            ends.append(record.started + record.seconds.get("total", 0.0))
    stored = sum(outcomes.values())
    detail = f"{stored} of at most {planned} trials: "
    detail += ", ".join(f"{number} {outcome}" for outcome, number in outcomes.items())
    if plain.state == "in part" and ends:
        detail += f"; last one {_ago(now - max(ends))}{_rate(np.array(ends), planned - stored, now)}"
    return StageState(name=name, state=plain.state, detail=detail)


def _rate(ends: np.ndarray[Any, Any], left: int, now: float) -> str:
    """Trials an hour of late, and when the rest is done at that rate; nothing where nothing ended of late.

    `ends`: [n] Unix times at which trials ended.
    """
    late = ends[ends > now - _WINDOW_SECONDS]
    if len(late) < 2 or left <= 0 or now - float(late.max()) > _STILL_SECONDS:
        return ""
    span = max(now - float(late.min()), 1.0)
    rate = (len(late) - 1) / span
    return f"; {rate * 3600:.0f} an hour, the rest by {_clock(now + left / rate, now)}"


def _train_state(name: str, path: Path, now: float) -> StageState:
    plain = _plain_state(name, path)
    metrics = path / "metrics.jsonl"
    if plain.state == "not begun" or not metrics.is_file():
        return plain
    rows: list[dict[str, Any]] = [json.loads(line) for line in metrics.read_text().splitlines() if line.endswith("}")]
    if not rows:
        return plain
    step = int(rows[-1].get("step", 0))
    target = _target(path)
    detail = f"step {step}" + (f" of {target}" if target else " so far")
    times = [float(row["time"]) for row in rows[-_STEPS - 1 :] if "time" in row]
    if plain.state == "in part" and times:
        detail += f"; last one {_ago(now - times[-1])}"
        gaps = np.diff(times)
        # A gap over a restart is not the length of a step; the median does not mind one.
        if len(gaps) and target > step:
            seconds = float(np.median(gaps))
            detail += f"; {seconds:.0f} s a step, the last by {_clock(now + seconds * (target - step), now)}"
    return StageState(name=name, state=plain.state, detail=detail)


def _target(path: Path) -> int:
    manifest = path / "manifest.json"
    config = json.loads(manifest.read_text()).get("config", {}) if manifest.is_file() else {}
    return int(config.get("train", {}).get("steps", 0))


def _ago(seconds: float) -> str:
    if seconds < 120:
        return f"{max(0, seconds):.0f} s ago"
    return f"{seconds / 60:.0f} min ago" if seconds < 7_200 else f"{seconds / 3600:.0f} h ago"


def _clock(then: float, now: float) -> str:
    shape = "%H:%M" if then - now < 43_200 else "%a %Y-%m-%d %H:%M"
    return time.strftime(shape, time.localtime(then))


def _when(marker: Path) -> str:
    return time.strftime("since %Y-%m-%d %H:%M", time.localtime(marker.stat().st_mtime))
