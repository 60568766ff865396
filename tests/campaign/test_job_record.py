"""Two calls at the same time end as one submission, with file locks and without."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from stateward.campaign.job_record import changes, note, submitted_jobs, submitting
from stateward.errors import UserError
from stateward.store import lock


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
    assert found["tuned"] == found["an-endpoint"] == []
    assert len(changes(tmp_path, "report", after)) == 2
    assert changes(tmp_path, "merge", after) == []  # nothing is known of it
