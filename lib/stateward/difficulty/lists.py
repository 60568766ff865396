"""Selector lists and exclusion lists as files: read with line numbers, written byte for byte the same."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import yaml

from stateward.errors import UserError

#: Selectors that YAML reads as the text they are; asking the YAML writer about each takes a tenth of a millisecond.
_UID = re.compile(r"[A-Za-z][\w/.-]*\.py:[A-Za-z_]\w*", re.ASCII)


def read_exclusions(path: Path) -> dict[str, str]:
    """uid → ``file:line`` of an exclusion list: YAML or JSON, a mapping whose ``uids`` is a list of texts.

    Raises:
        UserError: with file and line, for a file of another shape.
    """
    node = _compose(path)
    if not isinstance(node, yaml.MappingNode):
        raise UserError(f"{_at(path, node)}: an exclusion list is a mapping", do="write uids: [file.py:test_name, ...]")
    for key, value in node.value:
        if key.value == "uids":
            return _texts(path, value)
    found = ", ".join(str(key.value) for key, _ in node.value)
    raise UserError(
        f"{_at(path, node)}: no key 'uids'", f"it has {found or 'no keys'}", "write uids: [file.py:test_name, ...]"
    )


def read_list(path: Path) -> dict[str, str]:
    """uid → ``file:line`` of a selector list: a YAML list of ``file.py:test_name``. Raises UserError with the line."""
    return _texts(path, _compose(path))


def refuse_overlap(train: Path, benchmark: Path) -> None:
    """Raises UserError, with both files and lines, if the two selector lists share a uid."""
    first, second = read_list(train), read_list(benchmark)
    shared = [uid for uid in first if uid in second]
    if shared:
        more = f" (and {len(shared) - 1} more)" if len(shared) > 1 else ""
        raise UserError(
            f"{shared[0]!r} stands in {first[shared[0]]} and in {second[shared[0]]}{more}",
            "a task that may be trained on cannot be held out",
            "remove it from one of the two lists",
        )


def selector_yaml(uids: Iterable[str]) -> bytes:
    """A selector list, sorted, one task a line."""
    lines = [f"- {_plain(uid)}\n" for uid in sorted(uids)]
    return "".join(lines).encode() if lines else b"[]\n"


def _plain(uid: str) -> str:
    if _UID.fullmatch(uid):
        return uid
    # Quoted and in ASCII, so that no character is folded or read as a line's end.
    text: str = yaml.safe_dump(uid, default_style='"', allow_unicode=False, width=len(uid) * 10 + 80)
    return text.removesuffix("\n")


def _compose(path: Path) -> yaml.Node | None:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read", str(error), "name a readable YAML or JSON file") from error
    try:
        node: yaml.Node | None = yaml.compose(
            text, Loader=yaml.CSafeLoader if hasattr(yaml, "CSafeLoader") else yaml.SafeLoader
        )
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise UserError(f"{path}:{line}: not valid YAML", error.problem or str(error)) from error
    return node


def _texts(path: Path, node: yaml.Node | None) -> dict[str, str]:
    if not isinstance(node, yaml.SequenceNode):
        raise UserError(f"{_at(path, node)}: not a list", do="write one '- file.py:test_name' a line")
    found: dict[str, str] = {}
    items: Sequence[Any] = node.value
    for item in items:
        if not isinstance(item, yaml.ScalarNode) or item.tag != "tag:yaml.org,2002:str" or not item.value:
            raise UserError(f"{_at(path, item)}: not a task's uid", do="write file.py:test_name")
        if item.value in found:
            raise UserError(
                f"{_at(path, item)}: {item.value!r} stands in {found[item.value]} already", do="remove one of them"
            )
        found[item.value] = _at(path, item)
    return found


def _at(path: Path, node: yaml.Node | None) -> str:
    return f"{path}:{node.start_mark.line + 1}" if node is not None else f"{path}:1"
