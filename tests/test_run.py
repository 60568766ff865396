"""The runner of the suite: what a failed test's second run decides."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import pytest

ANSWER = tuple[int, list[str]]


@pytest.fixture
def run() -> ModuleType:
    spec = importlib.util.spec_from_file_location("suite_runner", Path(__file__).with_name("run.py"))
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("answers", "status", "said"),
    [
        ([(0, []), (0, [])], 0, "0 failed, 0 flaky"),
        ([(1, ["a"]), (0, []), (0, [])], 0, "FLAKY a"),
        ([(1, ["a"]), (1, ["a"]), (0, [])], 1, "FAILED a"),
        ([(1, ["a", "b"]), (1, ["b"]), (0, [])], 1, "FAILED b"),
        ([(1, ["a"]), (4, []), (0, [])], 1, "FAILED a"),  # there is no such test: nothing ran again
        ([(1, ["a"]), (-9, []), (0, [])], 1, "FAILED a"),
        ([(1, ["a", "b", "c", "d"]), (0, [])], 1, "FAILED d"),  # too many: not run again
        ([(1, ["a", "b"]), (0, []), (1, ["c", "d"])], 1, "FAILED d"),  # over all groups
        ([(2, []), (0, [])], 1, "FAILED fast tests: pytest ended with status 2"),
        ([(5, []), (0, [])], 1, "pytest ended with status 5"),
    ],
)
def test_failures(
    run: ModuleType,
    answers: list[ANSWER],
    status: int,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    left = iter(answers)

    def answer(title: str, options: Sequence[str]) -> ANSWER:
        return next(left)

    monkeypatch.setattr(run, "pytest", answer)
    assert run.main([]) == status
    assert said in capsys.readouterr().out
    assert next(left, None) is None
