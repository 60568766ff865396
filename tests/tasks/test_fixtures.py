"""Fixtures that a dataset defines for its checks."""

from __future__ import annotations

import pytest

from stateward.errors import UserError
from stateward.tasks import FixtureSpec

RUBRIC = "thinkingbox.common.rubrics_judge.RubricJudge"


def test_deeper_files_and_the_scenario_win(dataset) -> None:
    dataset.write("test_case/conftest.yaml", "fixtures:\n  a: {type: m.A}\n  b: {type: m.B}\n  c: {type: m.C, n: 1}\n")
    dataset.write("test_case/case/conftest.yaml", "fixtures:\n  b: {type: m.B2}\n")
    scenario = (dataset.root / "scenario/shop.yaml").read_text()
    dataset.write("scenario/shop.yaml", scenario + f"fixtures: {{a: {{type: {RUBRIC}, max_workers: 4}}}}\n")
    dataset.write(
        "test_case/case/case_x.py", 'def test_it(x, b):\n    """!\n    scenario: shop\n    query: q\n    """\n'
    )
    found = {fixture.name: fixture for fixture in dataset.one("case_x.py:test_it").check.fixtures}
    assert found == {
        "a": FixtureSpec(name="a", type=RUBRIC, parameters={"max_workers": 4}),
        "b": FixtureSpec(name="b", type="m.B2"),
        "c": FixtureSpec(name="c", type="m.C", parameters={"n": 1}),
    }


def test_a_test_that_asks_for_none_carries_none(dataset) -> None:
    dataset.write("test_case/conftest.yaml", "fixtures:\n  a: {type: m.A}\n")
    assert dataset.one("shop.py:test_cancel").check.fixtures == ()


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("fixture: {}", ["conftest.yaml:1", "'fixture'", "did you mean 'fixtures'"]),
        ("fixtures:\n  a: {typ: m.A}", ["conftest.yaml:2", "'a' has no type"]),
        ("fixtures:\n  a: {type: A}", ["conftest.yaml:2", "'A' is not a dotted name"]),
        ("fixtures:\n  judge: {type: m.A}", ["conftest.yaml:2", "cannot be called 'judge'"]),
        (
            "fixtures:\n  a: {type: thinkingbox.common.SessionClientFixture}",
            ["conftest.yaml:2", "not supported", "x.effects"],
        ),
        ("fixtures:\n  a: {type: thinkingbox.fixtures.Other}", ["conftest.yaml:2", "not available", "RubricJudge"]),
    ],
)
def test_mistakes(dataset, text: str, parts: list[str]) -> None:
    dataset.write("test_case/conftest.yaml", text)
    with pytest.raises(UserError) as caught:
        dataset.one("shop.py:test_keep")
    for part in parts:
        assert part in str(caught.value)


def test_an_empty_conftest_is_allowed(dataset) -> None:
    dataset.write("test_case/conftest.yaml", "# nothing yet\n")
    assert dataset.one("shop.py:test_keep").check.fixtures == ()
