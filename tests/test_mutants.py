"""What tools/mutants.py changes, and what it leaves alone."""

from __future__ import annotations

from pathlib import Path

import pytest

TOOLS = Path(__file__).parents[1] / "tools"

SOURCE = '''\
"""A text."""
import os

LIMIT = 3

def f(rows: list[int], late: bool = False) -> int | None:
    """A text."""
    total = 0
    for row in rows:
        if row < LIMIT and not late:
            continue
        total += 2 * row
    if late:
        raise ValueError(f"{1 + 1} of 2")
    print("so many", 4)
    rows[0] = total
    return total
'''


def test_every_kind_of_change_is_made_once_and_texts_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(TOOLS))
    from mutants import mutants_of  # type: ignore[import-not-found]

    found = mutants_of(SOURCE, "m.py")
    assert {mutant.name.removeprefix("m.py:") for mutant in found} == {
        "4 3 → (4)",
        "6 False → (True)",
        "8 0 → (1)",
        "10 row < LIMIT and not late → (row < LIMIT or not late)",
        "10 row < LIMIT → (row <= LIMIT)",
        "10 not late → (late)",
        "11 continue → pass",
        "12 total += 2 * row → pass",
        "12 2 * row → (2 / row)",
        "12 2 → (3)",
        "13 late → (not (late))",
        '14 raise ValueError(f"{1 + 1} of 2") → pass',
        "16 rows[0] = total → pass",
        "16 0 → (1)",
        "17 return total → return None",
    }
    for mutant in found:
        compile(mutant.text, "m.py", "exec")
        assert sum(a != b for a, b in zip(mutant.text.splitlines(), SOURCE.splitlines(), strict=True)) == 1
    condition = next(mutant for mutant in found if mutant.name.startswith("m.py:10 row < LIMIT →"))
    assert (condition.first, condition.last) == (10, 10), "the head of the `if`, without what it decides about"
