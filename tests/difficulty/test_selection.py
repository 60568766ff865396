"""Exclusion lists, the reference gate, and the stratified split."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from stateward.config import Config
from stateward.difficulty import curate
from stateward.difficulty.lists import read_exclusions, read_list, refuse_overlap, selector_yaml
from stateward.difficulty.split import stratified_test
from stateward.errors import UserError

HALF = {f"a.py:t{i}": "pf" for i in range(6)}


def run(config: Config, made: SimpleNamespace, tmp_path: Path, outcomes: Any = HALF, **more: Any) -> curate.Pool:
    stage = made.stage(tmp_path / "run", outcomes)
    return curate.run(config, [stage], tasks=[made.task(u) for u in outcomes], benchmark=[made.task("h.py:z")], **more)


def reasons(pool: curate.Pool, uid: str) -> list[str]:
    return next(d.reasons for d in pool.decisions if d.uid == uid)


def test_exclusion_lists(config: Config, made: SimpleNamespace, tmp_path: Path) -> None:
    first, second = tmp_path / "broken.yaml", tmp_path / "more.json"
    first.write_text("# known to be wrong\nreason: typo in the check\nuids:\n- a.py:t1\n- a.py:gone\n")
    second.write_text(json.dumps({"uids": ["a.py:t2", "a.py:t1"]}, indent=1))
    config.curate.exclude = [str(second), str(first)]
    pool = run(config, made, tmp_path)
    assert pool.uids("train") == ["a.py:t0", "a.py:t3", "a.py:t4", "a.py:t5"]
    assert reasons(pool, "a.py:t1") == [f"excluded by {first}:4"]
    assert reasons(pool, "a.py:t2") == [f"excluded by {second}:3"]
    manifest = json.loads((pool.folder / "manifest.json").read_text())
    assert manifest["paths"]["exclude"] == [str(first), str(second)]
    assert len(manifest["inputs"]["exclude"]) == 2


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("- a.py:x\n", 1, "a mapping"),
        ("uid: [a.py:x]\n", 1, "no key 'uids'"),
        ("uids:\n  a.py:x\n", 2, "not a list"),
        ("uids:\n- a.py:x\n- 7\n", 3, "not a task's uid"),
        ("uids:\n- a.py:x\n- b.py:y\n- a.py:x\n", 4, "stands in"),
        ("uids:\n- [a\n", 3, "not valid YAML"),
        ("", 1, "a mapping"),
    ],
)
def test_bad_exclusion_lists(tmp_path: Path, text: str, line: int, says: str) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(text)
    with pytest.raises(UserError) as error:
        read_exclusions(path)
    assert str(error.value).startswith(f"{path}:{line}: ")
    assert says in str(error.value)


def test_overlapping_lists_are_refused_with_both_lines(tmp_path: Path) -> None:
    train, held = tmp_path / "train.yaml", tmp_path / "held.yaml"
    train.write_text("- a.py:x\n- a.py:y\n- a.py:w\n")
    held.write_text("# held out\n- a.py:z\n- a.py:w\n- a.py:y\n")
    with pytest.raises(UserError) as error:
        refuse_overlap(train, held)
    assert f"'a.py:y' stands in {train}:2 and in {held}:4 (and 1 more)" in str(error.value)
    held.write_text("- a.py:z\n")
    refuse_overlap(train, held)


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), unique=True))
@settings(max_examples=200, deadline=None)
def test_selector_lists_read_back(uids: list[str]) -> None:
    assert yaml.safe_load(selector_yaml(uids)) == sorted(uids)


def test_selector_list_looks_as_people_write_it(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_bytes(selector_yaml(["b.py:t", "dir/a-1.py:test_x", "a.py:t[é]"]))
    assert path.read_text() == '- "a.py:t[\\xE9]"\n- b.py:t\n- dir/a-1.py:test_x\n'
    assert read_list(path) == {"a.py:t[é]": f"{path}:1", "b.py:t": f"{path}:2", "dir/a-1.py:test_x": f"{path}:3"}


def test_reference_gate(config: Config, made: SimpleNamespace, tmp_path: Path) -> None:
    strong = {"a.py:t0": "pppp", "a.py:t1": "fppf", "a.py:t2": "fffp", "a.py:t3": "ffff", "a.py:t4": "pvvv"}
    stage = made.stage(tmp_path / "strong", strong, policy="strong", trials=4, stop_rule="fixed")
    config.curate.reference.inputs = [str(stage)]
    config.curate.reference.passes = 2
    pool = run(config, made, tmp_path)
    assert pool.uids("train") == ["a.py:t0", "a.py:t1"]
    assert reasons(pool, "a.py:t2") == ["the reference model solved it 1 of 4 times; 2 of 4 are wanted"]
    assert "3 of its trials are missing or void" in reasons(pool, "a.py:t4")[0]
    assert "4 of its trials are missing or void" in reasons(pool, "a.py:t5")[0]
    assert "solved it 4 of 4 times" in reasons(pool, "a.py:t0")[-1]
    row = json.loads((pool.folder / "difficulty.jsonl").read_text().splitlines()[1])
    assert row["reference"] == {"passes": 2, "valid": 4}


def test_reference_gate_mistakes(config: Config, made: SimpleNamespace, tmp_path: Path) -> None:
    path = made.jsonl(tmp_path / "strong.jsonl", [{"uid": "a.py:t0", "success": True}] * 5)
    config.curate.reference.inputs = [str(path)]
    with pytest.raises(UserError) as error:
        run(config, made, tmp_path)
    assert "curate.reference.trials=5" in str(error.value)
    config.curate.reference.passes = 5
    with pytest.raises(UserError, match="wants 5 passes of 4"):
        run(config, made, tmp_path)


def test_split_of_a_pool(config: Config, made: SimpleNamespace, tmp_path: Path) -> None:
    outcomes = {f"{d}.py:t{i:02d}": "pf" if i % 2 else "fffffffp" for d in "abc" for i in range(20)}
    config.curate.test_share = 0.25
    pool = run(config, made, tmp_path, outcomes)
    train, test = set(pool.uids("train")), set(pool.uids("test"))
    assert len(test) == 15
    assert not train & test
    assert train | test == set(outcomes)
    by_stratum = Counter((d.domain, d.estimate.band, d.counts.valid) for d in pool.decisions if d.decision == "test")
    assert len(by_stratum) == 6
    assert set(by_stratum.values()) <= {2, 3}  # 2.5 of each
    assert set(yaml.safe_load((pool.folder / "test.yaml").read_text())) == test
    config.curate.seed = 43
    assert set(run(config, made, tmp_path, outcomes, replace=True).uids("test")) != test


@pytest.mark.parametrize("share", [-0.1, 1.0])
def test_shares_that_are_none(config: Config, made: SimpleNamespace, tmp_path: Path, share: float) -> None:
    config.curate.test_share = share
    with pytest.raises(UserError, match=r"curate\.test_share"):
        run(config, made, tmp_path)


def test_a_split_with_an_empty_side_is_refused(config: Config, made: SimpleNamespace, tmp_path: Path) -> None:
    config.curate.test_share = 0.05
    with pytest.raises(UserError, match="one side of the split empty"):
        run(config, made, tmp_path)


def test_tasks_that_are_the_same_stay_on_one_side(config: Config, made: SimpleNamespace, tmp_path: Path) -> None:
    stage = made.stage(tmp_path / "run", {f"a.py:t{i:02d}": "pf" for i in range(40)})
    tasks = [
        made.task(f"a.py:t{i:02d}", query=f"the same thing number {'abcdefghijklmnopqrst'[i // 2]}") for i in range(40)
    ]
    config.curate.test_share = 0.5
    pool = curate.run(config, [stage], tasks=tasks, benchmark=[made.task("h.py:z")])
    test = set(pool.uids("test"))
    assert len(test) == 20
    for i in range(0, 40, 2):
        assert (f"a.py:t{i:02d}" in test) == (f"a.py:t{i + 1:02d}" in test)


uids = st.dictionaries(
    st.text("abcdef", min_size=1, max_size=4), st.tuples(st.sampled_from("xyz"), st.sampled_from("123")), min_size=1
)


@given(uids, st.floats(0, 1), st.integers(0, 9), st.randoms())
@settings(max_examples=200, deadline=None)
def test_split_properties(strata: dict[str, tuple[str, str]], share: float, seed: int, random: Any) -> None:
    test = stratified_test(strata, share, seed)
    assert len(test) == round(len(strata) * share)
    shuffled = list(strata.items())
    random.shuffle(shuffled)
    assert stratified_test(dict(shuffled), share, seed) == test
    sizes, taken = Counter(strata.values()), Counter(strata[u] for u in test)
    for stratum, size in sizes.items():
        assert abs(taken[stratum] - size * share) < 1
