"""Two calls at the same time end as one submission, with file locks and without."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from stateward.campaign.job_record import changes, note, submitted_jobs, submitting
from stateward.errors import UserError
from stateward.store import lock
from stateward.store.stage import write_json


@pytest.mark.parametrize("locks", [True, False])
def test_one_call_submits_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, locks: bool) -> None:
    if not locks:  # as Lustre without `flock` answers
        monkeypatch.setattr(lock, "take", lambda file: OSError(errno.ENOLCK, "No locks available"))
    with (
        submitting(tmp_path),
        pytest.raises(UserError, match="chain") as caught,
        submitting(tmp_path),
    ):
        pass
    assert "another call submits" in caught.value.why
    with submitting(tmp_path):
        note(tmp_path, "train", ["7"], {})
    assert submitted_jobs(tmp_path) == {"train": ["7"]}


def test_only_settings_that_a_job_reads_count_as_changed(tmp_path: Path) -> None:
    before = {"config": {"train": {"steps": 1}, "probe": {"trials": 2}, "name": "a"}}
    after = {"config": {"train": {"steps": 5}, "probe": {"trials": 4}, "name": "a"}}
    for link in ("probe", "train", "train-seed2", "tuned", "an-endpoint", "report"):
        note(tmp_path, link, ["1"], before)
    found = {link: changes(tmp_path, link, after) for link in ("probe", "train", "tuned", "an-endpoint")}
    assert found["probe"] == ["config.probe.trials: 2 → 4"]
    assert found["train"] == changes(tmp_path, "train-seed2", after) == ["config.train.steps: 1 → 5"]
    assert found["tuned"] == found["an-endpoint"] == changes(tmp_path, "report", after) == []
    assert changes(tmp_path, "report", {"config": {**before["config"], "name": "b"}}) == ["config.name: a → b"]
    assert changes(tmp_path, "merge", after) == []  # nothing is known of it


def test_chunks_of_a_submission_that_was_refused_half_way_are_known(tmp_path: Path) -> None:
    note(tmp_path, "train", ["7"], {})
    write_json(tmp_path / "slurm" / "probe" / "jobs.json", {"jobs": ["3", "4"]})
    write_json(tmp_path / "eval" / "base" / "slurm" / "jobs.json", {"jobs": ["5"]})
    assert submitted_jobs(tmp_path) == {"train": ["7"], "probe": ["3", "4"], "base": ["5"]}
