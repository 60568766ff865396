"""Read what a check's process reports. It ran code of the dataset, so nothing of it is taken as it comes."""

from __future__ import annotations

import math
from typing import Any

from stateward.outcome import Outcome
from stateward.strict_json import read_json

_KINDS = ("grader", "judge", "task")
_SHOWN = 200  # characters of a refused value
#: Field → its type; all may be missing.
_FIELDS: dict[str, type] = {
    "failure": dict,
    "kind": str,
    "cause": str,
    "prints": str,
    "metadata": dict,
    "judge_answers": list,
}
_FAILURE = {"file": str, "line": int, "text": str, "message": str}


def read_verdict(body: bytes) -> dict[str, Any]:
    """The verdict of `stateward.grading.check.run_check`, with its outcome as `Outcome` and its reward as a float.

    NaN and infinities in what the check left behind, which no record could keep, are None.

    Raises:
        ValueError: it is none. The text says why.
    """
    verdict = read_json(body, constants_as_null=True)
    if not isinstance(verdict, dict):
        raise ValueError(f"the check's verdict is {_shown(verdict)} and not an object")
    for name, kind in _FIELDS.items():
        if name in verdict and not isinstance(verdict[name], kind):
            raise ValueError(f"the check left {_shown(verdict[name])} as {name}, which must be a {kind.__name__}")
    outcome = verdict.get("outcome")
    if outcome not in list(Outcome):
        raise ValueError(f"the check's outcome is {_shown(outcome)}")
    if outcome == Outcome.VOID:
        if verdict.get("kind") not in _KINDS or not verdict.get("cause"):
            raise ValueError(f"the check is void of kind {_shown(verdict.get('kind'))}")
        reward = math.nan
    else:
        reward = _reward(verdict.get("reward"), Outcome(outcome))
        if verdict.get("kind") or verdict.get("cause"):
            raise ValueError(f"the check's outcome is {outcome} and it has the cause of a void")
    failure = verdict.get("failure")
    if failure and any(not isinstance(failure.get(name), kind) for name, kind in _FAILURE.items()):
        raise ValueError(f"the check's failure is {_shown(failure)}")
    if any(not isinstance(answer, dict) for answer in verdict.get("judge_answers", [])):
        raise ValueError("the check's answers of the judge are not objects")
    return {**verdict, "outcome": Outcome(outcome), "reward": reward}


def read_questions(body: bytes) -> list[list[dict[str, Any]]]:
    """The conversations that a check sends to the judge.

    Raises:
        ValueError: they are none. The text says why.
    """
    conversations = read_json(body)
    if not isinstance(conversations, list) or not all(isinstance(messages, list) for messages in conversations):
        raise ValueError(f"the check asked the judge {_shown(conversations)}, which is no list of conversations")
    for message in (message for messages in conversations for message in messages):
        if not isinstance(message, dict) or set(message) != {"role", "content"}:
            raise ValueError(f"the check sent the judge {_shown(message)}, which is no message")
        if not all(isinstance(value, str) for value in message.values()):
            raise ValueError(f"the check sent the judge {_shown(message)}, whose parts must be text")
    return conversations


def _reward(value: Any, outcome: Outcome) -> float:
    """A finite number in [0, 1], and 1 if and only if the outcome is pass."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0.0 <= value <= 1.0 or (value == 1.0) != (outcome is Outcome.PASS):
        raise ValueError(f"the check's reward is {_shown(value)} and its outcome {outcome}")
    return float(value)


def _shown(value: Any) -> str:
    return f"{value!r:.{_SHOWN}}"
