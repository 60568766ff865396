"""A ledger grows at its end and can prove that nothing else ever happened to it."""

from __future__ import annotations

import json
import math

import pytest

from stateward.policy import Ledger


def grown() -> Ledger:
    ledger = Ledger()
    ledger.append("prompt", [5, 6, 7])
    ledger.append("sample", [8, 9], [-0.5, -0.25])
    ledger.append("observation", [1, 2])
    ledger.append("sample", [3], [-1.0])
    return ledger


def test_arrays_line_up() -> None:
    ledger = grown()
    ledger.check()
    assert ledger.ids == [5, 6, 7, 8, 9, 1, 2, 3]
    assert ledger.mask == [0, 0, 0, 1, 1, 0, 0, 1]
    assert ledger.logprobs == [0.0, 0.0, 0.0, -0.5, -0.25, 0.0, 0.0, -1.0]
    assert (ledger.prompt_length, ledger.response_length, len(ledger)) == (3, 5, 8)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda x: x.ids.__setitem__(0, 99), "earlier token was changed"),
        (lambda x: x.ids.append(4), "lengths differ"),
        (lambda x: x.mask.__setitem__(3, 0), r"mask\[3\] is 0 inside a sample"),
        (lambda x: x.mask.__setitem__(5, 1), r"mask\[5\] is 1 inside a observation"),
        (lambda x: x.logprobs.__setitem__(5, -1.0), r"logprobs\[5\] is -1.0 inside a observation"),
        (lambda x: x.logprobs.__setitem__(4, 0.7), r"logprobs\[4\] is 0.7 inside a sample"),
        (lambda x: x.segments.pop(), "segments end at 7, but there are 8 tokens"),
        (lambda x: x.segments.__delitem__(1), "expected to start at 3"),
    ],
)
def test_check_finds_every_kind_of_damage(spoil: object, said: str) -> None:
    ledger = grown()
    spoil(ledger)  # type: ignore[operator]
    with pytest.raises(ValueError, match=said):
        ledger.check()


@pytest.mark.parametrize(
    ("kind", "ids", "logprobs", "said"),
    [
        ("prompt", [1], [], "only prompt"),
        ("sample", [1, 2], [-0.1], "2 token ids but 1 log-probabilities"),
        ("observation", [1], [-0.1], "belong to sampled tokens"),
        ("sample", [-1], [], "negative token id"),
    ],
)
def test_append_refuses(kind: str, ids: list[int], logprobs: list[float], said: str) -> None:
    ledger = grown()
    with pytest.raises(ValueError, match=said):
        ledger.append(kind, ids, logprobs)  # type: ignore[arg-type]
    ledger.check()
    assert len(ledger) == 8


def test_a_ledger_starts_with_its_prompt() -> None:
    with pytest.raises(ValueError, match="only prompt"):
        Ledger().append("sample", [1])


def test_unknown_logprobs_are_not_zero_and_not_written() -> None:
    ledger = Ledger()
    ledger.append("prompt", [1])
    ledger.append("sample", [2])
    ledger.check()
    assert math.isnan(ledger.logprobs[1])
    assert json.loads(json.dumps(ledger.to_json(), allow_nan=False)) == {"ids": [1, 2], "mask": [0, 1], "logprobs": []}
    assert grown().to_json()["logprobs"] == grown().logprobs
