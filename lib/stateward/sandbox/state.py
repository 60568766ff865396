"""The state of a world as a value: its hash, and what differs between two of them."""

from __future__ import annotations

from typing import Any

from stateward.outcome import fingerprint

_ABSENT = None


def state_hash(state: dict[str, Any]) -> str:
    """16 hex digits; equal for equal states whatever the order of their keys."""
    return fingerprint(state)


def state_diff(before: Any, after: Any) -> list[list[Any]]:
    """What changed, as ``[path, before, after]`` rows in a stable order.

    A path is dotted, list positions included (``shop.orders.3.status``). A value that only one side has is None on the
    other. Lists are compared by position; if only their ends differ in length, the extra items are rows of their own.
    """
    rows: list[list[Any]] = []
    _collect((), before, after, rows)
    return rows


def _collect(path: tuple[str, ...], before: Any, after: Any, rows: list[list[Any]]) -> None:
    if isinstance(before, dict) and isinstance(after, dict):
        for key in [*before, *(k for k in after if k not in before)]:
            step = (*path, str(key))
            if key in before and key in after:
                _collect(step, before[key], after[key], rows)
            else:
                rows.append([".".join(step), before.get(key, _ABSENT), after.get(key, _ABSENT)])
    elif isinstance(before, list) and isinstance(after, list):
        for i in range(max(len(before), len(after))):
            step = (*path, str(i))
            if i < len(before) and i < len(after):
                _collect(step, before[i], after[i], rows)
            else:
                old, new = (before[i], _ABSENT) if i < len(before) else (_ABSENT, after[i])
                rows.append([".".join(step), old, new])
    elif type(before) is not type(after) or before != after:
        rows.append([".".join(path), before, after])
