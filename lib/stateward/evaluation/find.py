"""Find one trial in every stage of a run directory."""

from __future__ import annotations

from pathlib import Path

from stateward.errors import UserError
from stateward.evaluation.viewer import episode_text
from stateward.store import read_records


def show_trial(run_dir: Path, name: str) -> str:
    """The text of trial ``UID:INDEX`` (or ``UID#INDEX``) in every stage that has it: probe and evaluations.

    Raises:
        UserError: not of that form, or no such trial.
    """
    uid, _, index = name.replace("#", ":").rpartition(":")
    if not (uid and index.isdecimal()):
        raise UserError(f"--trial {name}: not UID:INDEX", do="for instance --trial shop.py:test_buy:7")
    stages = [run_dir / "probe", *sorted((run_dir / "eval").glob("*"))]
    found = []
    seen: set[str] = set()
    for stage in stages:
        if not stage.is_dir():
            continue
        records = read_records(stage)
        label = str(stage.relative_to(run_dir))
        found += [episode_text(record, label) for record in records.find(uid, int(index))]
        seen |= {u.decode() for u in records.columns["uid"].tolist()}
    if not found:
        known = uid in seen
        raise UserError(
            f"--trial {name}: no stage of {run_dir} has it",
            f"task {uid} is there, trial {index} is not" if known else f"no stage has a task {uid}",
            "" if known else f"tasks are, for instance, {', '.join(sorted(seen)[:3]) or 'none yet'}",
        )
    return "\n\n".join(found)
