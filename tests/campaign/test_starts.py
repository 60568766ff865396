"""A stage whose trials of one task begin in different states ends with words, not with a rate."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from stateward.campaign.owed import own_errors, require_one_start
from stateward.difficulty.records import read_stage
from stateward.errors import UserError
from stateward.outcome import EpisodeRecord, Outcome, Trial
from stateward.store import Journal, Stage


def stage(folder: Path, *starts: str, last: Outcome = Outcome.PASS, fault: str = "") -> Any:
    made = Stage(folder, "probe")
    made.begin({}, {"trials": len(starts), "stop_rule": "fixed"})
    with Journal(made.shards / "0000-00.jsonl") as journal:
        for index, start in enumerate(starts):
            trial = Trial(uid="shop.py:test_a", index=index, policy="p", settings="s")
            outcome = last if index == len(starts) - 1 else Outcome.PASS
            void = outcome is Outcome.VOID
            record = EpisodeRecord(trial=trial, outcome=outcome, reward=float("nan") if void else 1.0, domain="shop")
            record.initial_state_hash, record.fault_kind = start, fault if void else ""
            journal.append(record.to_json())
    return SimpleNamespace(name="probe", stage=made, policy_id="p", settings_id="s")


def test_one_beginning_is_scored(tmp_path: Path) -> None:
    plan = stage(tmp_path, "1", "1", "2", last=Outcome.VOID, fault="grader")
    require_one_start(plan)
    assert read_stage(plan.stage.path, planned=3).tasks["shop.py:test_a"].passes == 2
    assert own_errors(plan) == 1


def test_several_beginnings_are_refused(tmp_path: Path) -> None:
    plan = stage(tmp_path, "1", "1", "2")
    said = r"1 tasks begin in different states: shop\.py:test_a"
    with pytest.raises(UserError, match=said):
        require_one_start(plan)
    with pytest.raises(UserError, match=said):
        read_stage(plan.stage.path, planned=3)
