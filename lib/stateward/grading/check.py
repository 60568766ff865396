"""Run one check to its verdict, inside the forked and confined process."""

from __future__ import annotations

import io
import numbers
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from types import ModuleType, TracebackType
from typing import Any

from stateward.grading.checkapi.context import TestContext, from_evidence
from stateward.grading.checkapi.judge import Ask, Judge, JudgeFault
from stateward.grading.fixtures import Fixtures

#: Of a reward from 0 and 1: weights that add up to 1 in arithmetic miss it in floats.
_TOLERANCE = 1e-6
_MAX_TEXT = 8_000  # characters of a message or a cause that are kept

Verdict = dict[str, Any]


class BoundedText(io.TextIOBase):
    """Standard output of a check: keeps the first `limit` characters and counts the rest."""

    def __init__(self, limit: int) -> None:
        self.limit, self.kept, self.size, self.lost = limit, list[str](), 0, 0

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        part = text[: self.limit - self.size]
        if part:
            self.kept.append(part)
            self.size += len(part)
        self.lost += len(text) - len(part)
        return len(text)

    def text(self) -> str:
        return "".join(self.kept) + (f"\n… {self.lost} more characters" if self.lost else "")


def run_check(check: dict[str, Any], evidence: dict[str, Any], ask: Ask, prints: int) -> Verdict:
    """The verdict of `check` on `evidence`.

    Args:
        check: file, function, source, fixtures, load_only (run the module part alone). The source is compiled here,
            under the limits of the check.
        ask: sends conversations to the judge.
        prints: characters of printed text to keep.

    Returns:
        {"outcome", "reward", "failure", "kind", "cause", "prints", "metadata", "judge_answers"}.
    """
    output = BoundedText(prints)
    sys.stdout = sys.stderr = output
    context = from_evidence(evidence)
    judge = Judge(ask)
    verdict = _verdict(check, context, judge)
    verdict.update(prints=output.text(), metadata=context.metadata, judge_answers=judge.asked)
    return verdict


def _verdict(check: dict[str, Any], context: TestContext, judge: Judge) -> Verdict:
    try:
        function = _load(check)
        if check["load_only"]:
            return {"outcome": "pass", "reward": 1.0}
        with ExitStack() as stack:
            fixtures = Fixtures(check["fixtures"], {"x": context, "judge": judge}, stack)
            arguments = fixtures.arguments(function)
            try:
                return _of_value(function(**arguments), check, function)
            except BaseException as error:
                if not _is_failure(error):
                    raise
                # Only here: one raised while the file loads or a fixture is made says nothing about the episode.
                line = _line(error.__traceback__, check["file"])
                return _fail(0.0, check, line, str(error)[:_MAX_TEXT])
    except JudgeFault as error:
        return {"outcome": "void", "kind": "judge", "cause": str(error)[:_MAX_TEXT]}
    except BaseException as error:  # noqa: BLE001 - whatever else a check raises, SystemExit included, is its fault
        line = _line(error.__traceback__, check["file"])
        place = f" at {check['file']}:{line}: {_text(check, line)}" if line else ""
        said = "".join(traceback.format_exception_only(error)).strip()
        kind = "task" if check["load_only"] else "grader"
        return {**_void(f"the check raised {said}{place}"[:_MAX_TEXT]), "kind": kind}


def _is_failure(error: BaseException) -> bool:
    """Whether an exception says that the check failed: an assertion, or pytest's own (`fail`, `raises`)."""
    outcomes = sys.modules.get("_pytest.outcomes")  # Failed names another module as its own
    return isinstance(error, AssertionError) or (outcomes is not None and isinstance(error, outcomes.Failed))


def _load(check: dict[str, Any]) -> Callable[..., Any]:
    module = ModuleType("stateward_check")
    module.__file__ = check["file"]
    sys.modules[module.__name__] = module  # dataclasses and pickle look a class's module up there
    exec(compile(check["source"], check["file"], "exec", dont_inherit=True), module.__dict__)
    function: Callable[..., Any] = module.__dict__[check["function"]]
    return function


def _of_value(value: Any, check: dict[str, Any], function: Callable[..., Any]) -> Verdict:
    if type(value).__module__ == "numpy" and type(value).__name__ in ("bool", "bool_"):
        value = bool(value)  # what comparing its values gives is neither a bool nor a number of Python's
    if value is None or value is True:
        return {"outcome": "pass", "reward": 1.0}
    if isinstance(value, numbers.Real) and -_TOLERANCE <= float(value) <= 1.0 + _TOLERANCE:
        reward = min(max(float(value), 0.0), 1.0)
        if reward >= 1.0 - _TOLERANCE:
            return {"outcome": "pass", "reward": 1.0}
        reward = 0.0 if reward <= _TOLERANCE else reward
        return _fail(reward, check, function.__code__.co_firstlineno, f"the check returned {value!r}")
    return _void(f"the check returned {value!r:.200}; it must return nothing, a bool, or a reward from 0 to 1")


def _fail(reward: float, check: dict[str, Any], line: int, message: str) -> Verdict:
    failure = {"file": check["file"], "line": line, "text": _text(check, line), "message": message}
    return {"outcome": "fail", "reward": reward, "failure": failure}


def _void(cause: str) -> Verdict:
    return {"outcome": "void", "kind": "grader", "cause": cause}


def _line(trace: TracebackType | None, file: str) -> int:
    """The line of the innermost frame that belongs to the check's file; 0 when there is none."""
    line = 0
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == file:
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


def _text(check: dict[str, Any], line: int) -> str:
    lines: Sequence[str] = check["source"].split("\n")
    return lines[line - 1].strip() if 0 < line <= len(lines) else ""
