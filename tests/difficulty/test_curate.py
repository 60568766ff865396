"""Curation from records and JSONL to a pool: the same bytes for the same inputs, and every decision with its reason."""

from __future__ import annotations

import hashlib
import json
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from stateward.config import Config, config_to_dict
from stateward.difficulty import curate
from stateward.errors import UserError
from stateward.store import Stage

#: What a probe under the rule `kept` leaves of 8 trials, and what becomes of it with the full-parameter profile.
PROBED = {
    "a.py:never": "ffffffff",
    "a.py:always": "pppppppp",
    "a.py:half": "pf",
    "a.py:once": "fffffffp",
    "b.py:all_but_one": "ppppppfp"[:7],
    "b.py:void_then": "vpf",
}
KEPT = ["a.py:half", "a.py:once", "b.py:all_but_one", "b.py:void_then"]


def everything(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def tasks_of(made: SimpleNamespace, uids: Any) -> list[Any]:
    return [made.task(uid) for uid in uids]


@pytest.fixture
def held_out(made: SimpleNamespace) -> list[Any]:
    return tasks_of(made, ["held.py:one", "held.py:two"])


def rows_of(pool: curate.Pool) -> dict[str, dict[str, Any]]:
    lines = (pool.folder / "difficulty.jsonl").read_text().splitlines()
    return {row["uid"]: row for row in map(json.loads, lines)}


def test_pool_from_records(config: Config, made: SimpleNamespace, held_out: list[Any], tmp_path: Path) -> None:
    stage = made.stage(tmp_path / "run", PROBED)
    pool = curate.run(config, [stage], tasks=tasks_of(made, PROBED), benchmark=held_out)
    assert yaml.safe_load((pool.folder / "train.yaml").read_text()) == KEPT
    assert not (pool.folder / "test.yaml").exists()
    rows = rows_of(pool)
    assert list(rows) == sorted(PROBED)
    half = rows["a.py:half"]
    assert (half["passes"], half["valid"], half["voids"], half["planned"]) == (1, 2, 0, 8)
    assert half["posterior"] == [1.5, 1.5]
    assert half["basis"] == "certain"
    assert half["decision"] == "train"
    assert "whatever the other 6 of 8" in half["reasons"][0]
    assert sum(half["mass"].values()) == pytest.approx(1, abs=1e-5)
    assert rows["a.py:never"]["band"] == "rarely"
    assert rows["a.py:never"]["basis"] == "full"
    assert rows["b.py:void_then"]["voids"] == 1
    assert rows["b.py:void_then"]["valid"] == 2
    manifest = json.loads((pool.folder / "manifest.json").read_text())
    assert manifest["counts"]["trials"] == {
        "planned": 48, "valid": 8 + 8 + 2 + 8 + 7 + 2, "passes": 8 + 1 + 1 + 6 + 1, "voids": 1, "saved_share": 0.270833,
    }  # fmt: skip
    for name, digest in manifest["outputs"].items():
        assert hashlib.sha256((pool.folder / name).read_bytes()).hexdigest() == digest
    assert set(manifest["outputs"]) == set(everything(pool.folder)) - {"manifest.json", "DONE"}
    assert Stage(config.run_dir, "pool").is_done(manifest["inputs"])


def test_same_bytes_again_and_from_other_shards(
    config: Config, made: SimpleNamespace, held_out: list[Any], tmp_path: Path, plots: None
) -> None:
    tasks = tasks_of(made, PROBED)
    stage = made.stage(tmp_path / "run", PROBED)
    first = curate.run(config, [stage], tasks=tasks, benchmark=held_out)
    before = everything(first.folder)
    assert first.changed
    again = curate.run(config, [stage], tasks=tasks[::-1], benchmark=held_out[::-1])
    assert not again.changed
    assert everything(again.folder) == before
    # The same trials in three unsealed shards, written in another order.
    for file in stage.joinpath("shards").iterdir():
        file.unlink()
    made.stage(tmp_path / "run", PROBED, shards=3, sealed=False, order=lambda u: sorted(u, reverse=True))
    third = curate.run(config, [stage], tasks=tasks, benchmark=held_out)
    assert not third.changed
    assert everything(third.folder) == before


def test_curtailed_and_fixed_probes_give_the_same_pool(
    config: Config, made: SimpleNamespace, held_out: list[Any], tmp_path: Path
) -> None:
    from stateward.difficulty import stop_rule

    rng = random.Random(3)
    full = {f"m.py:t{i:03d}": "".join("p" if rng.random() < i / 150 else "f" for _ in range(8)) for i in range(150)}
    rule = stop_rule("kept", config.probe, config.curate.bands)

    def curtailed(text: str) -> str:
        return next(text[:m] for m in range(9) if rule(text[:m].count("p"), m))

    tasks = tasks_of(made, full)
    pools = []
    for name, outcomes in (("fixed", full), ("short", {uid: curtailed(t) for uid, t in full.items()})):
        config.run_dir = str(tmp_path / name)
        stage = made.stage(tmp_path / name, outcomes, stop_rule="fixed" if name == "fixed" else "kept")
        pools.append(curate.run(config, [stage], tasks=tasks, benchmark=held_out))
    assert (pools[0].folder / "train.yaml").read_bytes() == (pools[1].folder / "train.yaml").read_bytes()
    assert pools[1].tally()["trials"]["valid"] < 0.7 * pools[0].tally()["trials"]["valid"]


def test_unfinished_probe(config: Config, made: SimpleNamespace, held_out: list[Any], tmp_path: Path) -> None:
    outcomes = {"a.py:open": "ppv", "a.py:half": "pf"}
    stage = made.stage(tmp_path / "run", outcomes)
    tasks = tasks_of(made, [*outcomes, "a.py:unprobed"])
    with pytest.raises(UserError, match=r"2 tasks are undecided, such as a\.py:open"):
        curate.run(config, [stage], tasks=tasks, benchmark=held_out)
    assert not (tmp_path / "run" / "pool").exists()
    config.curate.min_valid_trials = 3
    pool = curate.run(config, [stage], tasks=tasks, benchmark=held_out, unfinished=True)
    rows = rows_of(pool)
    assert rows["a.py:half"]["decision"] == "train"  # certain; the minimum is for decisions that are not
    assert rows["a.py:open"]["decision"] == "drop"
    assert "2 valid trials; at least 3" in rows["a.py:open"]["reasons"][-1]
    assert rows["a.py:unprobed"]["reasons"] == ["not probed"]


def test_a_probe_that_stopped_for_other_bands(
    config: Config, made: SimpleNamespace, held_out: list[Any], tmp_path: Path
) -> None:
    stage = made.stage(tmp_path / "run", {"a.py:half": "pf"}, bands=config_to_dict(config.curate.bands))
    config.curate.bands.keep = ["difficult", "intermediate"]
    with pytest.raises(UserError) as error:
        curate.run(config, [stage], tasks=tasks_of(made, ["a.py:half"]), benchmark=held_out)
    assert "the probe stopped early for other bands" in str(error.value)
    assert "keep=['difficult', 'intermediate', 'frequently']" in str(error.value)


def test_bounded_probe_is_read_with_its_own_error(
    config: Config, made: SimpleNamespace, held_out: list[Any], tmp_path: Path
) -> None:
    """The stage's manifest says which rule stopped it; the configuration at hand may have moved on."""
    stage = made.stage(
        tmp_path / "run",
        {"a.py:x": "pppp", "a.py:y": "pf"},
        trials=16,
        stop_rule="bounded",
        probe={"bounded_error": 0.2},
    )
    pool = curate.run(config, [stage], tasks=tasks_of(made, ["a.py:x", "a.py:y"]), benchmark=held_out)
    row = rows_of(pool)["a.py:x"]
    assert (row["basis"], row["decision"], row["planned"]) == ("bounded", "drop", 16)
    assert "bounded chance" in row["reasons"][0]


def test_a_manifest_that_is_none(config: Config, made: SimpleNamespace, held_out: list[Any], tmp_path: Path) -> None:
    stage = made.stage(tmp_path / "run", {"a.py:half": "pf"})
    (stage / "manifest.json").write_text('{"inputs": {"trials": "many"}}')
    with pytest.raises(UserError, match="not the manifest of a sampling stage"):
        curate.run(config, [stage], tasks=tasks_of(made, ["a.py:half"]), benchmark=held_out)
    (stage / "manifest.json").unlink()
    assert rows_of(curate.run(config, [stage], tasks=tasks_of(made, ["a.py:half"]), benchmark=held_out))


def test_several_runs_add_up(config: Config, made: SimpleNamespace, held_out: list[Any], tmp_path: Path) -> None:
    one = made.stage(tmp_path / "one", {"a.py:x": "ffffffff", "a.py:y": "pf"})
    two = made.stage(tmp_path / "two", {"a.py:x": "fppfpppf"}, settings="s2", first_index=8)
    tasks = tasks_of(made, ["a.py:x", "a.py:y"])
    pool = curate.run(config, [one, two], tasks=tasks, benchmark=held_out)
    row = rows_of(pool)["a.py:x"]
    assert (row["passes"], row["valid"], row["planned"], row["runs"]) == (5, 16, 16, 2)
    assert row["band"] == "difficult"
    before = everything(pool.folder)
    assert not curate.run(config, [two, one], tasks=tasks, benchmark=held_out).changed
    assert everything(pool.folder) == before
    with pytest.raises(UserError, match="hold the same trials"):
        curate.run(config, [one, two, tmp_path / "one"], tasks=tasks, benchmark=held_out)


def test_two_policies_or_settings_are_refused(
    config: Config, made: SimpleNamespace, held_out: list[Any], tmp_path: Path
) -> None:
    one = made.stage(tmp_path / "one", {"a.py:x": "pf"})
    other = made.stage(tmp_path / "two", {"a.py:x": "pf"}, policy="later")
    tasks = tasks_of(made, ["a.py:x"])
    with pytest.raises(
        UserError, match=r"two policies are mixed in one probe: 'later' in .*two/probe and 'base' in .*one"
    ):
        curate.run(config, [one, other], tasks=tasks, benchmark=held_out)
    mixed = tmp_path / "three" / "probe"
    (mixed / "shards").mkdir(parents=True)
    for name, source in (("0.h5", one), ("1.h5", other)):
        (mixed / "shards" / name).write_bytes((source / "shards" / "0000-00.h5").read_bytes())
    with pytest.raises(UserError, match=r"two policies are mixed in one probe: 'base' \(task a.py:x\) and 'later'"):
        curate.run(config, [mixed], tasks=tasks, benchmark=held_out)
    again = made.stage(tmp_path / "four", {"a.py:x": "pf"}, settings="s2")
    (mixed / "shards" / "1.h5").write_bytes((again / "shards" / "0000-00.h5").read_bytes())
    with pytest.raises(UserError, match="two settings are mixed"):
        curate.run(config, [mixed], tasks=tasks, benchmark=held_out)


def test_other_inputs_do_not_replace_a_pool_unasked(
    config: Config, made: SimpleNamespace, held_out: list[Any], tmp_path: Path
) -> None:
    stage = made.stage(tmp_path / "run", PROBED)
    tasks = tasks_of(made, PROBED)
    pool = curate.run(config, [stage], tasks=tasks, benchmark=held_out)
    before = everything(pool.folder)
    config.curate.bands.keep = ["rarely", "difficult"]
    with pytest.raises(UserError, match="other inputs"):
        curate.run(config, [stage], tasks=tasks, benchmark=held_out, unfinished=True)
    assert everything(pool.folder) == before
    assert curate.run(config, [stage], tasks=tasks, benchmark=held_out, unfinished=True, replace=True).changed
    assert everything(pool.folder) != before
    assert [p.name for p in (tmp_path / "run").iterdir() if p.name.startswith(".")] == []


def test_another_spelling_of_a_path_is_the_same_input(
    config: Config, made: SimpleNamespace, held_out: list[Any], tmp_path: Path
) -> None:
    stage = made.stage(tmp_path / "run", PROBED)
    tasks = tasks_of(made, PROBED)
    first = curate.run(config, [stage], tasks=tasks, benchmark=held_out)
    curate.run(config, [stage.parent / "." / ".." / "run"], tasks=tasks, benchmark=held_out)
    assert first.uids("train") == KEPT


def test_dry_run_writes_nothing(config: Config, made: SimpleNamespace, held_out: list[Any], tmp_path: Path) -> None:
    stage = made.stage(tmp_path / "probe-run", PROBED)
    pool = curate.run(config, [stage], tasks=tasks_of(made, PROBED), benchmark=held_out, dry_run=True)
    assert pool.uids("train") == KEPT
    assert not (tmp_path / "run").exists()


def test_empty_pool_says_why(config: Config, made: SimpleNamespace, held_out: list[Any], tmp_path: Path) -> None:
    stage = made.stage(tmp_path / "run", {"a.py:x": "ffffffff", "a.py:y": "pppppppp"})
    with pytest.raises(UserError) as error:
        curate.run(config, [stage], tasks=tasks_of(made, ["a.py:x", "a.py:y"]), benchmark=held_out)
    assert "the pool is empty" in str(error.value)
    assert "rarely, which is not kept" in str(error.value)
    assert not (tmp_path / "run" / "pool").exists()


def test_tasks_outside_the_training_list_are_not_taken(
    config: Config, made: SimpleNamespace, held_out: list[Any], tmp_path: Path
) -> None:
    stage = made.stage(tmp_path / "run", PROBED)
    pool = curate.run(config, [stage], tasks=tasks_of(made, ["a.py:half"]), benchmark=held_out)
    assert pool.uids("train") == ["a.py:half"]
    assert rows_of(pool)["a.py:once"]["reasons"] == ["not in tasks.train"]


def test_nothing_is_half_written_when_a_write_fails(
    config: Config, made: SimpleNamespace, held_out: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import os

    stage = made.stage(tmp_path / "run", PROBED)
    tasks = tasks_of(made, PROBED)
    curate.run(config, [stage], tasks=tasks, benchmark=held_out)
    before = everything(tmp_path / "run")
    config.curate.bands.keep = ["difficult", "intermediate"]
    config.curate.min_valid_trials = 2
    real, left, seen = os.fsync, [0], []

    def full_disk(fd: int) -> None:
        left[0] -= 1
        if left[0] == 0:
            raise OSError(28, "No space left on device")
        real(fd)

    for stop in range(1, 100):  # every file, the folders, and last the parent folder after the renames
        left[0] = stop
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", full_disk)
            with pytest.raises(OSError):
                curate.run(config, [stage], tasks=tasks, benchmark=held_out, unfinished=True, replace=True)
        after = everything(tmp_path / "run")
        seen.append(after == before)
        if after != before:
            break
    assert len(seen) > 5
    assert json.loads(after["pool/manifest.json"])["inputs"]["curate"]["min_valid_trials"] == 2
    assert set(after) == set(before)


def test_a_kill_between_the_two_renames_is_mended(
    config: Config, made: SimpleNamespace, held_out: list[Any], tmp_path: Path
) -> None:
    stage = made.stage(tmp_path / "run", PROBED)
    tasks = tasks_of(made, PROBED)
    pool = curate.run(config, [stage], tasks=tasks, benchmark=held_out)
    before = everything(tmp_path / "run")
    pool.folder.rename(tmp_path / "run" / ".pool.old")
    assert not curate.run(config, [stage], tasks=tasks, benchmark=held_out).changed
    assert everything(tmp_path / "run") == before
