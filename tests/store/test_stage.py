from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stateward.errors import UserError
from stateward.store import Stage, changed_inputs, hash_file


def test_a_stage_from_start_to_marker(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "77")
    monkeypatch.setenv("SLURM_ARRAY_JOB_ID", "70")
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "7")
    stage = Stage(tmp_path, "eval/base")
    inputs = {"sampling": {"temperature": 1.0}, "tasks": "abc"}
    assert stage.manifest == {}
    assert not stage.is_done(inputs)
    stage.begin({"name": "x"}, inputs)
    with stage.record_worker(gpus=8) as worker:
        assert "ended" not in json.loads(worker.path.read_text()), "a killed worker leaves a start without an end"
    created = stage.manifest["created"]
    stage.begin({"name": "x"}, inputs)  # continued
    assert stage.manifest["created"] == created
    assert not stage.is_done(inputs)
    assert stage.shards.is_dir()
    stage.done(episodes=3)
    assert stage.is_done(inputs)
    assert stage.is_done()
    m = stage.manifest
    assert len(m["starts"]) == 2
    assert m["starts"][0]["slurm"]["SLURM_JOB_ID"] == "77"
    assert m["workers"][0]["gpus"] == 8
    assert m["workers"][0]["ended"] >= m["workers"][0]["time"]
    assert m["workers"][0]["slurm"]["SLURM_ARRAY_TASK_ID"] == "7"
    assert m["episodes"] == 3
    assert m["config"] == {"name": "x"}
    assert m["versions"]["h5py"]
    assert m["versions"]["python"]
    assert m["finished"] >= m["created"]
    assert sorted(p.name for p in stage.path.iterdir()) == ["DONE", "manifest.json", "shards", "workers"]


def test_other_inputs_are_named(tmp_path: Path) -> None:
    stage = Stage(tmp_path, "train")
    stage.begin({}, {"train": {"steps": 50, "seed": 1}, "pool": "aa"})
    with pytest.raises(UserError, match="begun") as caught:
        stage.begin({}, {"train": {"steps": 60, "seed": 1}, "pool": "aa"})
    assert "train.steps: 50 → 60" in str(caught.value)
    stage.done()
    with pytest.raises(UserError, match="finished") as caught:
        stage.is_done({"train": {"steps": 50, "seed": 1}, "pool": "bb"})
    assert "pool: aa → bb" in caught.value.why
    assert "seed" not in caught.value.why
    assert "DONE" in caught.value.do


def test_changed_inputs() -> None:
    assert changed_inputs({"a": [1, 2], "b": {"3": 1}}, {"a": (1, 2), "b": {3: 1}}) == []
    assert changed_inputs({"a": 1}, {"b": {}}) == ["a: 1 → (absent)", "b: (absent) → {}"]


def test_done_without_begin_is_a_bug(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="before begin"):
        Stage(tmp_path, "probe").done()


def test_the_marker_is_last(tmp_path: Path, monkeypatch: Any) -> None:
    """If gathering fails, there is no marker."""
    stage = Stage(tmp_path, "probe")
    stage.begin({}, {})
    stage.record_worker()
    (worker,) = (stage.path / "workers").iterdir()
    worker.write_text("{")
    with pytest.raises(json.JSONDecodeError):
        stage.done()
    assert not stage.is_done()


def test_hash_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    assert hash_file(tmp_path / "a") == "ba7816bf8f01cfea"
