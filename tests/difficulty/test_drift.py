"""A later policy on the pool's tasks: what left the useful bands, without touching the pool."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from stateward.config import Config
from stateward.difficulty import curate
from stateward.difficulty.drift import reprobe
from stateward.errors import UserError

BEFORE = {"a.py:hard": "fffffffp", "a.py:half": "pf", "a.py:easy": "pppppppf", "a.py:never": "ffffffff"}


@pytest.fixture
def pool(config: Config, made: SimpleNamespace, tmp_path: Path) -> curate.Pool:
    stage = made.stage(tmp_path / "run", BEFORE)
    return curate.run(config, [stage], tasks=[made.task(u) for u in BEFORE], benchmark=[made.task("h.py:z")])


def test_moves(config: Config, made: SimpleNamespace, tmp_path: Path, pool: curate.Pool, plots: None) -> None:
    later = {"a.py:hard": "fpfpfppf", "a.py:half": "pppppppp", "a.py:easy": "pppppppp", "a.py:other": "pf"}
    stage = made.stage(tmp_path / "later", later, policy="step50", stop_rule="fixed")
    before = (pool.folder / "train.yaml").read_bytes()
    drift = reprobe(config, [stage])
    assert drift.changed
    assert drift.folder == tmp_path / "run" / "drift" / "step50"
    assert [d.uid for d in drift.left] == ["a.py:easy", "a.py:half"]
    assert drift.moves() == {
        ("difficult", "nearly_always"): 1,
        ("difficult", "intermediate"): 1,
        ("frequently", "nearly_always"): 1,
    }
    assert yaml.safe_load((drift.folder / "train.yaml").read_text()) == ["a.py:hard"]
    rows = {r["uid"]: r for r in map(json.loads, (drift.folder / "drift.jsonl").read_text().splitlines())}
    assert set(rows) == {"a.py:hard", "a.py:half", "a.py:easy"}  # training tasks of the pool alone
    assert rows["a.py:easy"]["before"]["band"] == "frequently"
    assert rows["a.py:easy"]["after"]["band"] == "nearly_always"
    assert (rows["a.py:easy"]["step"], rows["a.py:easy"]["stays"]) == (1, False)
    assert rows["a.py:hard"]["stays"] is True
    text = "\n".join(drift.lines())
    assert "2 tasks left the useful bands (2 became easier), 1 stay" in text
    assert "a.py:half: difficult → nearly_always (8 of 8)" in text
    assert (pool.folder / "train.yaml").read_bytes() == before
    assert (drift.folder / "plots" / "moves.svg").is_file()
    assert not reprobe(config, [stage]).changed
    labelled = reprobe(config, [stage], label="later", dry_run=True)
    assert not labelled.folder.exists()


def test_mistakes(config: Config, made: SimpleNamespace, tmp_path: Path, pool: curate.Pool) -> None:
    same = made.stage(tmp_path / "same", {"a.py:hard": "pf", "a.py:half": "pf", "a.py:easy": "pf"})
    with pytest.raises(UserError, match="the one that the pool was made for"):
        reprobe(config, [same])
    other = made.stage(tmp_path / "other", {"b.py:x": "pf"}, policy="step50")
    with pytest.raises(UserError, match="no task of the pool") as error:
        reprobe(config, [other])
    assert "pool/train.yaml" in str(error.value)
    part = made.stage(tmp_path / "part", {"a.py:hard": "pf"}, policy="step50")
    with pytest.raises(UserError, match="has not ended: 2 tasks"):
        reprobe(config, [part])
    drift = reprobe(config, [part], unfinished=True)
    assert [d.uid for d in drift.probed] == ["a.py:hard"]
    with pytest.raises(UserError, match="cannot name a folder"):
        reprobe(config, [part], unfinished=True, label="../x")
    config.curate.bands.names[1] = "hard"
    config.curate.bands.keep[0] = "hard"
    with pytest.raises(
        UserError, match=r"difficulty\.jsonl:1: band 'frequently'|difficulty\.jsonl:\d: band 'difficult'"
    ):
        reprobe(config, [part], unfinished=True)
    (pool.folder / "DONE").unlink()
    with pytest.raises(UserError, match="no finished pool there"):
        reprobe(config, [part])
