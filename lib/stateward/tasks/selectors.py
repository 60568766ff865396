"""Selectors: ``file.py:test_name``, in a YAML list or given one by one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from stateward.errors import UserError
from stateward.tasks.yaml_text import Document, read


def read_selectors(path: Path) -> list[str]:
    """The selectors of a YAML list, in order. Raises as `read_list` does."""
    return list(read_list(path).data)


def read_list(path: Path) -> Document:
    """A YAML list of selectors, with their positions.

    Raises:
        UserError: no such file, not a list, an entry of another form, or one that stands twice; with its line.
    """
    if not path.is_file():
        raise UserError(f"{path}: no such selector list", do="name a YAML list of file.py:test_name")
    document = read(path)
    if not isinstance(document.data, list):
        raise document.mistake((), "a selector list must be a YAML list", do="- orders.py:test_cancel")
    seen: dict[str, int] = {}
    for number, item in enumerate(document.data):
        if not isinstance(item, str) or not _is_selector(item):
            raise document.mistake((number,), f"{item!r} is not a selector", do="write file.py:test_name")
        if item in seen:
            first = document.where(seen[item]).rpartition(":")[2]
            raise document.mistake((number,), f"{item} stands twice, first at line {first}", do="remove one of them")
        seen[item] = number
    return document


def check_selectors(selectors: Sequence[str]) -> list[tuple[str, str]]:
    """(file, test) of each selector.

    Raises:
        UserError: an entry of another form, or one that stands twice.
    """
    seen: set[str] = set()
    for item in selectors:
        if not _is_selector(item):
            raise UserError(f"{item!r} is not a selector", do="write file.py:test_name")
        if item in seen:
            raise UserError(f"{item} is selected twice", "each task is one entry of a pool", "remove one of them")
        seen.add(item)
    return [(file, test) for file, _, test in (item.partition(":") for item in selectors)]


def _is_selector(text: str) -> bool:
    file, colon, test = text.partition(":")
    return bool(colon) and file.endswith(".py") and "/" not in file and test.isidentifier()
