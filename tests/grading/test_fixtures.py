"""Fixtures in the grading process, and an installed package of the offered names."""

from __future__ import annotations

from pathlib import Path

import pytest

from stateward.grading import Evidence, GradeLimits, Grader
from stateward.outcome import Outcome

from .conftest import FakeJudge, check

MODULE = """
import contextlib

class Plain:
    def __init__(self, word="default", judge=None):
        self.word, self.judge = word, judge

class Asking:
    def __init__(self, judge, x, plain, *, times=1):
        self.judge, self.x, self.plain, self.times = judge, x, plain, times

@contextlib.contextmanager
def managed(x):
    print("enter")
    yield "inside"
    print("leave")

def broken():
    raise AssertionError("in the fixture")

@contextlib.contextmanager
def breaking():
    yield 1
    assert False, "in its end"

def left(right): ...
def right(left): ...
def unmet(nothing): ...
"""
FIXTURES = {
    "plain": ("my_fixtures.Plain", {"word": "given"}),
    "asking": ("my_fixtures.Asking", {"times": 3}),
    "managed": ("my_fixtures.managed", {}),
    "broken": ("my_fixtures.broken", {}),
    "breaking": ("my_fixtures.breaking", {}),
    "left": ("my_fixtures.left", {}),
    "right": ("my_fixtures.right", {}),
    "unmet": ("my_fixtures.unmet", {}),
    "absent": ("my_fixtures.Absent", {}),
    "misconfigured": ("my_fixtures.Plain", {"wrod": "x"}),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "my_fixtures.py").write_text(MODULE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path


async def graded(body: str, parameters: str):
    async with Grader(GradeLimits(deadline_seconds=20), judge=FakeJudge()) as grader:
        return await grader.grade(check(body, parameters=parameters, fixtures=FIXTURES), Evidence(response="r"))


async def test_fixtures_are_made_with_what_they_need(folder: Path) -> None:
    grade = await graded(
        """
        assert (asking.judge, asking.x, asking.times) == (judge, x, 3)
        assert asking.plain.word == "given" and asking.plain.judge is None
        assert managed == "inside"
        assert other == 5
        print("body")
        """,
        "x, judge, asking, managed, other=5",
    )
    assert grade.outcome is Outcome.PASS, (grade.failure, grade.fault_cause)
    assert grade.prints == "enter\nbody\nleave\n"


async def test_a_fixture_ends_when_the_check_fails(folder: Path) -> None:
    grade = await graded("assert managed == 'outside'", "x, managed")
    assert (grade.outcome, grade.failure["line"]) == (Outcome.FAIL, 3)
    assert grade.prints == "enter\nleave\n"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("broken", "AssertionError: in the fixture"),
        ("breaking", "AssertionError: in its end"),
        ("left", "left -> right -> left"),
        ("unmet", "needs 'nothing', which is not a fixture, x or judge"),
        ("absent", "no attribute 'Absent'"),
        ("misconfigured", "wrod"),
        ("not_defined", "missing 1 required positional argument"),
    ],
)
async def test_a_fixture_that_cannot_be_made_is_void(folder: Path, name: str, said: str) -> None:
    grade = await graded("pass", f"x, {name}")
    assert (grade.outcome, grade.fault_kind) == (Outcome.VOID, "grader")
    assert said in grade.fault_cause


async def test_an_installed_package_keeps_its_other_modules(folder: Path) -> None:
    package = folder / "thinkingbox"
    (package / "common").mkdir(parents=True)
    (package / "__init__.py").write_text("WHOSE = 'theirs'\n")
    (package / "common" / "__init__.py").write_text("class Judge: pass\n")
    (package / "common" / "extra.py").write_text("from thinkingbox.common.judge import Judge\n")
    (package / "tools.py").write_text("NAME = 'theirs'\n")
    grade = await graded(
        """
        from thinkingbox.common.extra import Judge as Again
        from thinkingbox import tools
        import thinkingbox.common.rubrics_judge
        assert Again is Judge and isinstance(judge, Judge)
        assert tools.NAME == "theirs"
        assert thinkingbox.common.rubrics_judge.RubricJudge is RubricJudge
        """,
        "x, judge",
    )
    assert grade.outcome is Outcome.PASS, (grade.failure, grade.fault_cause)
