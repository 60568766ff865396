"""JSONL from elsewhere: dotted names, counts a row, and every kind of bad row refused with its line."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from stateward.config import Config, FieldsConfig
from stateward.difficulty import curate
from stateward.difficulty.jsonl import read_jsonl
from stateward.errors import UserError

DOTTED = FieldsConfig(
    uid="task.id", success="result.ok", system_error="result.crash", policy="model.name", domain="task.area", trial="n"
)


def row(uid: str, ok: Any, n: int = 0, **more: Any) -> dict[str, Any]:
    return {"task": {"id": uid, "area": "desk"}, "result": {"ok": ok, **more}, "model": {"name": "m"}, "n": n}


def test_dotted_names(made: SimpleNamespace, tmp_path: Path) -> None:
    rows = [row("b.py:y", True), row("a.py:x", False, 0), row("a.py:x", True, 1), row("a.py:x", None, 2, crash="down")]
    counts = read_jsonl(made.jsonl(tmp_path / "r.jsonl", rows), DOTTED)
    assert list(counts.tasks) == ["a.py:x", "b.py:y"]
    x = counts.tasks["a.py:x"]
    assert (x.passes, x.valid, x.voids, x.planned, x.domain) == (1, 2, 1, 2, "desk")
    assert counts.policy == "m"
    assert counts.rows == 4


@pytest.mark.parametrize(("value", "passes"), [(True, 1), (False, 0), (1, 1), (0, 0), (1.0, 1), (0.99, 0), (0.0, 0)])
def test_success_values(made: SimpleNamespace, tmp_path: Path, value: Any, passes: int) -> None:
    counts = read_jsonl(made.jsonl(tmp_path / "r.jsonl", [{"uid": "a", "success": value}]), FieldsConfig())
    assert (counts.tasks["a"].passes, counts.tasks["a"].valid) == (passes, 1)


@pytest.mark.parametrize(("value", "voids"), [(None, 0), (False, 0), ("", 0), (True, 1), ("timeout", 1)])
def test_system_error_values(made: SimpleNamespace, tmp_path: Path, value: Any, voids: int) -> None:
    path = made.jsonl(tmp_path / "r.jsonl", [{"uid": "a", "success": True, "system_error": value}])
    task = read_jsonl(path, FieldsConfig()).tasks["a"]
    assert (task.voids, task.valid) == (voids, 1 - voids)


def test_counts_a_row(made: SimpleNamespace, tmp_path: Path) -> None:
    path = made.jsonl(
        tmp_path / "r.jsonl", [{"uid": "a", "stats": {"k": 3, "n": 8}}, {"uid": "b", "stats": {"k": 0, "n": 0}}]
    )
    counts = read_jsonl(path, FieldsConfig(passes="stats.k", trials="stats.n"))
    assert (counts.tasks["a"].passes, counts.tasks["a"].valid) == (3, 8)
    assert counts.rows == 8


GOOD = '{"uid": "a.py:x", "success": true}\n'


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        (GOOD + '{"uid": "a.py:x", "success": tru\n', 2, "not JSON"),
        (GOOD + GOOD[:-2], 2, "not JSON"),
        (GOOD + "\n\n[1, 2]\n", 4, "holds [1,2]"),
        (GOOD + '{"uid": "a.py:x", "success": NaN}\n', 2, "not JSON"),
        (GOOD + '{"uid": 7, "success": true}\n', 2, "'uid' is 7"),
        (GOOD + '{"uid": "", "success": true}\n', 2, "'uid' is \"\""),
        (GOOD + '{"uid": ["a"], "success": true}\n', 2, "'uid' is [\"a\"]"),
        (GOOD + '{"name": "a.py:x", "success": true}\n', 2, "no field 'uid'"),
        (GOOD + '{"uid": "a.py:x", "passed": true}\n', 2, "no field 'success'"),
        (GOOD + '{"uid": "a.py:x", "success": "yes"}\n', 2, "'success' is \"yes\""),
        (GOOD + '{"uid": "a.py:x", "success": null}\n', 2, "'success' is null"),
        (GOOD + '{"uid": "a.py:x", "success": 1.5}\n', 2, "'success' is 1.5"),
        (GOOD + '{"uid": "a.py:x", "success": true, "system_error": 3}\n', 2, "'system_error' is 3"),
        (GOOD + '{"uid": "b", "success": true, "domain": 3}\n', 2, "'domain' is 3"),
        (GOOD + '{"uid": "b", "success": true, "policy": 3}\n', 2, "'policy' is 3"),
        (
            '{"uid": "a", "success": true, "policy": "p"}\n' * 2 + '{"uid": "a", "success": true, "policy": "q"}\n',
            3,
            "two policies are mixed in one probe: 'q' here, 'p' in line 1",
        ),
    ],
)
def test_bad_rows(tmp_path: Path, text: str, line: int, says: str) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(text)
    with pytest.raises(UserError) as error:
        read_jsonl(path, FieldsConfig())
    assert str(error.value).startswith(f"{path}:{line}: ")
    assert says in str(error.value)


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ('{"uid": "a", "k": 1, "n": 2}\n{"uid": "b", "k": 9, "n": 8}\n', 2, "9 passes of 8 trials"),
        ('{"uid": "a", "k": 1, "n": 2}\n{"uid": "a", "k": 1, "n": 2}\n', 2, "counts already"),
        ('{"uid": "a", "k": 1}\n', 1, "no field 'n'"),
        ('{"uid": "a", "k": 1.0, "n": 2}\n', 1, "'k' is 1.0"),
        ('{"uid": "a", "k": true, "n": 2}\n', 1, "'k' is true"),
        ('{"uid": "a", "k": -1, "n": 2}\n', 1, "'k' is -1"),
    ],
)
def test_bad_counts(tmp_path: Path, text: str, line: int, says: str) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(text)
    with pytest.raises(UserError) as error:
        read_jsonl(path, FieldsConfig(passes="k", trials="n"))
    assert str(error.value).startswith(f"{path}:{line}: ")
    assert says in str(error.value)


def test_a_trial_stands_once(made: SimpleNamespace, tmp_path: Path) -> None:
    rows = [row("a", True, 0), row("b", True, 0), row("a", True, 1), row("a", False, 0)]
    with pytest.raises(UserError, match=r":4: trial 0 of task 'a' stands in line 1 already"):
        read_jsonl(made.jsonl(tmp_path / "r.jsonl", rows), DOTTED)
    del rows[3]["n"]
    with pytest.raises(UserError, match=":4: no field 'n'"):
        read_jsonl(made.jsonl(tmp_path / "r.jsonl", rows), DOTTED)
    rows[3]["n"] = "0"
    with pytest.raises(UserError, match=":4: 'n' is \"0\""):
        read_jsonl(made.jsonl(tmp_path / "r.jsonl", rows), DOTTED)


def test_a_missing_field_lists_those_that_are_there(made: SimpleNamespace, tmp_path: Path) -> None:
    with pytest.raises(UserError) as error:
        read_jsonl(made.jsonl(tmp_path / "r.jsonl", [row("a", True)]), FieldsConfig())
    assert "task.id, task.area, result.ok, model.name, n" in str(error.value)
    assert "curate.fields.uid=NAME" in str(error.value)


def test_files_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("\n")
    with pytest.raises(UserError, match="no trials there"):
        read_jsonl(tmp_path / "empty.jsonl", FieldsConfig())
    with pytest.raises(UserError, match="both passes and trials"):
        read_jsonl(tmp_path / "empty.jsonl", FieldsConfig(passes="k"))


def test_curate_from_jsonl_writes_nothing_on_a_bad_line(config: Config, made: SimpleNamespace, tmp_path: Path) -> None:
    tasks, held_out = [made.task("a.py:x"), made.task("a.py:y")], [made.task("h.py:z")]
    rows = [{"uid": u, "success": i % 2 == 0} for u in ("a.py:x", "a.py:y") for i in range(8)]
    path = made.jsonl(tmp_path / "r.jsonl", rows)
    good = path.read_text()
    path.write_text(good + "{")
    with pytest.raises(UserError, match=":17: not JSON"):
        curate.run(config, [path], tasks=tasks, benchmark=held_out)
    assert not (tmp_path / "run").exists()
    path.write_text(good)
    pool = curate.run(config, [path], tasks=tasks, benchmark=held_out)
    assert pool.uids("train") == ["a.py:x", "a.py:y"]
    with pytest.raises(UserError, match="neither a directory nor a file"):
        curate.run(config, [tmp_path / "nowhere"], tasks=tasks, benchmark=held_out)
    (tmp_path / "nothing" / "shards").mkdir(parents=True)
    with pytest.raises(UserError, match="no trials there"):
        curate.run(config, [tmp_path / "nothing"], tasks=tasks, benchmark=held_out)
