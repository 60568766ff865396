"""The contamination guard: every kind of overlap, and evidence that another person can check."""

from __future__ import annotations

import hashlib
import json
import random
import re
import unicodedata
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from stateward.config import Config
from stateward.difficulty import curate
from stateward.difficulty.guard import check_disjoint
from stateward.difficulty.near import clusters, similar_pairs
from stateward.difficulty.prints import TaskPrint, normalised, normalised_check, shingles
from stateward.errors import UserError
from stateward.tasks.task import Check, Task


def kinds(pool: list[Task], benchmark: list[Task], threshold: float = 0.85) -> list[tuple[str, str, str]]:
    return [(o.kind, o.pool, o.benchmark) for o in check_disjoint(pool, benchmark, threshold).overlaps]


def test_disjoint(made: SimpleNamespace) -> None:
    evidence = check_disjoint([made.task("a.py:x"), made.task("a.py:y")], [made.task("h.py:x")], 0.85)
    assert evidence.disjoint
    assert evidence.to_json()["verdict"] == "disjoint"
    assert evidence.to_json()["compared"] == {"pool": 2, "benchmark": 1}


def test_uid(made: SimpleNamespace) -> None:
    other = replace(made.task("a.py:x", query="something else entirely", check="def x(t): ..."), world={"desk": 1})
    assert kinds([made.task("a.py:x")], [other]) == [("uid", "a.py:x", "a.py:x")]


@pytest.mark.parametrize(
    "query",
    [
        "return my order 17, please",
        "  Return my\n\torder 17 — please!! ",
        "RETURN MY ORDER 17 PLEASE",
        "Ｒｅｔｕｒｎ my order １７ please",  # full width
        "return, my; order: 17. please",
    ],
)
def test_query_in_any_dress(made: SimpleNamespace, query: str) -> None:
    found = kinds([made.task("a.py:x", query="Return my order 17 please")], [made.task("h.py:y", query=query)])
    assert ("query", "a.py:x", "h.py:y") in found


def test_tasks_without_a_query_share_none(made: SimpleNamespace) -> None:
    a, b = (replace(made.task(uid, user=f"{uid} wants {uid}"), query="") for uid in ("a.py:x", "h.py:y"))
    assert kinds([a], [b]) == []


def test_world_and_check_together(made: SimpleNamespace) -> None:
    def task(uid: str, world: object, wants: int, head: str = "", note: str = "") -> Task:
        name = uid.split(":")[1]
        source = f'{head}\n\ndef {name}(t):\n    """!query: {uid}"""\n    assert t.effects["desk"] == {wants}  {note}\n'
        return made.task(uid, world={"desk": world}, check=source)  # type: ignore[no-any-return]

    pool = [task("a.py:x", {"order": 1}, 5)]
    # Other names, comments, layout and texts are the same check; another expectation or world is not.
    same = task("h.py:same", {"order": 1}, 5, head='"""!scenario: other"""\n# moved', note="# as agreed")
    assert kinds(pool, [same]) == [("start", "a.py:x", "h.py:same")]
    assert kinds(pool, [task("h.py:y", {"order": 1}, 6)]) == []
    assert kinds(pool, [task("h.py:y", {"order": 2}, 5)]) == []


def test_normalised_check_of_source_that_does_not_parse() -> None:
    assert normalised_check(Check(file="f", function="x", source="def x(:")) == "def x(:"


WORDS = ("amber", "birch", "cedar", "delta", "ember", "flint", "grove", "heath", "inlet", "jetty", "knoll", "lagoon")


def test_near_duplicates_around_the_threshold(made: SimpleNamespace) -> None:
    """Pairs of every similarity: flagged exactly from the threshold on, judged by the exact Jaccard similarity."""
    rng = random.Random(5)
    pool, benchmark, exact = [], [], {}
    for i in range(300):
        words = [f"{rng.choice(WORDS)}{rng.randrange(1000)}" for _ in range(60)]
        changed = list(words)
        for at in rng.sample(range(60), i % 12):
            changed[at] = f"new{i}x{at}"
        a, b = made.task(f"a.py:t{i}", query=" ".join(words)), made.task(f"h.py:t{i}", query=" ".join(changed) + " now")
        pool.append(a)
        benchmark.append(b)
        sa, sb = TaskPrint.of(a).shingles, TaskPrint.of(b).shingles
        exact[a.uid, b.uid] = len(sa & sb) / len(sa | sb)
    evidence = check_disjoint(pool, benchmark, 0.7)
    want = {pair for pair, s in exact.items() if s >= 0.7}
    assert 50 < len(want) < 250
    assert {(o.pool, o.benchmark) for o in evidence.overlaps} == want
    for o in evidence.overlaps:
        assert o.kind == "text"
        assert o.similarity == pytest.approx(exact[o.pool, o.benchmark])
    assert evidence.nearest[0].similarity == max(exact.values())
    assert evidence.index.chance(0.7) > 0.98


def test_user_context_counts_as_text(made: SimpleNamespace) -> None:
    facts = "The user is Ada Lovelace, born in 1815, and wants order 17 returned to the card that paid for it."
    a, b = made.task("a.py:x", query="Hi", user=facts), made.task("h.py:y", query="Hello", user=facts)
    assert kinds([a], [b]) == [("text", "a.py:x", "h.py:y")]


def test_clusters(made: SimpleNamespace) -> None:
    tasks = [
        made.task("a.py:1", query="one two three"),
        made.task("a.py:2", query="One, two, three!"),
        replace(made.task("a.py:3", query="nothing alike here at all", check="def f(t): ..."), world={"desk": 1}),
        replace(made.task("a.py:4", query="quite some other words again", check="def f(t): ..."), world={"desk": 1}),
        made.task("a.py:5"),
    ]
    assert clusters([TaskPrint.of(t) for t in tasks], 0.85) == [["a.py:1", "a.py:2"], ["a.py:3", "a.py:4"]]


def test_pairs_within_one_set_are_listed_once(made: SimpleNamespace) -> None:
    prints = [TaskPrint.of(made.task(f"a.py:{i}", query="always the same five words")) for i in range(3)]
    pairs = [(n.first, n.second) for n in similar_pairs(prints, None, 0.85)[0]]
    assert pairs == [("a.py:0", "a.py:1"), ("a.py:0", "a.py:2"), ("a.py:1", "a.py:2")]


def test_short_and_empty_texts() -> None:
    assert shingles("") == frozenset()
    assert shingles("hi") == {"hi"}
    assert shingles("a b c d") == {"a b c", "b c d"}
    assert normalised("…!?") == "...!?"


@pytest.mark.parametrize("threshold", [0.0, -1.0, 1.01])
def test_thresholds_that_are_none(made: SimpleNamespace, threshold: float) -> None:
    with pytest.raises(UserError, match="near_duplicate_threshold"):
        check_disjoint([made.task("a.py:x")], [made.task("h.py:y")], threshold)


def test_evidence_can_be_checked_by_someone_else(made: SimpleNamespace, config: Config, tmp_path: Path) -> None:
    """With the evidence file and one's own benchmark, but not the pool: recompute the digests and compare."""
    stage = made.stage(tmp_path / "run", {"a.py:x": "pf", "a.py:y": "pf"})
    held = [made.task("h.py:x"), made.task("h.py:y")]
    pool = curate.run(config, [stage], tasks=[made.task("a.py:x"), made.task("a.py:y")], benchmark=held)
    evidence = json.loads((pool.folder / "contamination.json").read_text())
    assert evidence["verdict"] == "disjoint"
    by_uid = {row["uid"]: row for row in evidence["benchmark"]}
    for task in held:
        words = re.findall(r"\w+", unicodedata.normalize("NFKC", task.query).casefold())
        digest = hashlib.sha256(" ".join(words).encode()).hexdigest()[:16]
        assert by_uid[task.uid]["query"] == digest
        assert digest not in {row["query"] for row in evidence["pool"]}
    assert {row["uid"] for row in evidence["pool"]} == {"a.py:x", "a.py:y"}
    assert evidence["method"]["chance_to_find_at_threshold"] > 0.999


def test_a_contaminated_pool_is_refused_with_evidence(config: Config, made: SimpleNamespace, tmp_path: Path) -> None:
    stage = made.stage(tmp_path / "run", {"a.py:x": "pf", "a.py:y": "pf", "a.py:never": "f" * 8})
    tasks = [made.task(u) for u in ("a.py:x", "a.py:y", "a.py:never")]
    held = [made.task("h.py:z", query=tasks[0].query), made.task("h.py:n", query=tasks[2].query)]
    with pytest.raises(UserError) as error:
        curate.run(config, [stage], tasks=tasks, benchmark=held, dry_run=True)
    refused = tmp_path / "run" / "contamination-refused.json"
    assert not refused.exists()
    with pytest.raises(UserError) as error:
        curate.run(config, [stage], tasks=tasks, benchmark=held)
    assert "1 tasks of the pool stand in the benchmark too; a.py:x shares with h.py:z the same query" in str(
        error.value
    )
    assert str(refused) in str(error.value)
    evidence = json.loads(refused.read_text())
    assert evidence["verdict"] == "overlap"
    # The task that is not selected may resemble the benchmark: it is not trained on.
    assert {o["pool"] for o in evidence["overlaps"]} == {"a.py:x"}
    assert not (tmp_path / "run" / "pool").exists()
    # Mended as the error says, the pool is written and the refusal goes.
    (tmp_path / "x.yaml").write_text("uids: [a.py:x]\n")
    config.curate.exclude = [str(tmp_path / "x.yaml")]
    assert curate.run(config, [stage], tasks=tasks, benchmark=held).uids("train") == ["a.py:y"]
    assert not refused.exists()
