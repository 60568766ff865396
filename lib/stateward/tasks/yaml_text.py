"""YAML with positions: values as JSON would hold them, and the line of any of them when something is wrong.

Values are read by libyaml; positions are worked out again only when an error needs one, so that reading costs no more
than it must.
"""

from __future__ import annotations

import datetime
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from stateward.errors import UserError

PathPart = str | int

if TYPE_CHECKING:
    from yaml import SafeLoader as _Base
else:
    _Base = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_Base):
    """A safe loader whose values are JSON: dates are text, keys are text, and a key stands once."""

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        # A key that a merge (<<) brings in may be said again; the mark keeps the duplicate check from it.
        if any(key.tag == "tag:yaml.org,2002:merge" for key, _ in node.value):
            node.merged = True  # type: ignore[attr-defined]
        super().flatten_mapping(node)


def _construct_mapping(loader: yaml.SafeLoader, node: yaml.MappingNode) -> Any:
    loader.flatten_mapping(node)
    out: dict[str, Any] = {}
    yield out
    for key_node, value_node in node.value:
        key = _json_key(loader.construct_object(key_node, deep=True), key_node)
        if key in out and not getattr(node, "merged", False):
            raise yaml.constructor.ConstructorError(None, None, f"the key {key!r} stands twice", key_node.start_mark)
        out[key] = loader.construct_object(value_node, deep=True)


def _json_key(key: Any, node: yaml.Node) -> str:
    """A key as JSON writes it: tool servers get their configuration as JSON."""
    if isinstance(key, str):
        return key
    if isinstance(key, bool) or key is None:
        return {True: "true", False: "false", None: "null"}[key]
    if isinstance(key, int | float):
        return str(key)
    raise yaml.constructor.ConstructorError(None, None, "a key must be plain text", node.start_mark)


def _construct_timestamp(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> str:
    value = yaml.SafeLoader.construct_yaml_timestamp(loader, node)
    text = value.isoformat()
    if isinstance(value, datetime.datetime) and value.utcoffset() == datetime.timedelta(0):
        text = text.removesuffix("+00:00") + "Z"
    return text


def _construct_float(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> float:
    value = yaml.SafeLoader.construct_yaml_float(loader, node)
    if not math.isfinite(value):
        raise yaml.constructor.ConstructorError(None, None, f"{node.value} has no form in JSON", node.start_mark)
    return value


def _refuse(loader: yaml.SafeLoader, node: yaml.Node) -> Any:
    raise yaml.constructor.ConstructorError(None, None, f"{node.tag} has no form in JSON", node.start_mark)


_Loader.add_constructor("tag:yaml.org,2002:map", _construct_mapping)
_Loader.add_constructor("tag:yaml.org,2002:timestamp", _construct_timestamp)
_Loader.add_constructor("tag:yaml.org,2002:float", _construct_float)
for _tag in ("binary", "set", "omap", "pairs"):
    _Loader.add_constructor(f"tag:yaml.org,2002:{_tag}", _refuse)


#: What a Python literal makes of one of JSON's two escapes for a character beyond the first plane.
_HALF = re.compile(r"[\ud800-\udfff]")


@dataclass(frozen=True, kw_only=True)
class Document:
    """One YAML text with the file and line where it begins.

    Attributes:
        file: how error messages name the file.
        first_line: line in `file`, 1-based, of the text's first line.
        last_line: the last line in `file` that can belong to the text; positions are kept within it.
    """

    data: Any
    file: str
    text: str
    first_line: int = 1
    last_line: int = 1 << 30

    def where(self, *path: PathPart) -> str:
        """``file:line`` of the value at `path`, or of the deepest part of `path` that exists."""
        node: yaml.Node | None = yaml.compose(self.text, _Loader)
        line = node.start_mark.line if node else 0
        for part in path:
            if isinstance(node, yaml.MappingNode):
                found = next(((k, v) for k, v in node.value if k.value == str(part)), None)
                if found is None:
                    break
                line, node = found[0].start_mark.line, found[1]
            elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
                node = node.value[part]
                line = node.start_mark.line
            else:
                break
        return f"{self.file}:{min(self.first_line + line, self.last_line)}"

    def mistake(self, path: tuple[PathPart, ...], what: str, why: str = "", do: str = "") -> UserError:
        """A `UserError` that begins with the place of `path`."""
        return UserError(f"{self.where(*path)}: {what}", why, do)


def parse(text: str, *, file: str, first_line: int = 1, last_line: int = 1 << 30) -> Document:
    """Read one YAML document.

    Raises:
        UserError: not YAML, a key that stands twice, a value without a form in JSON; with file and line.
    """
    if half := _HALF.search(text):
        line = min(first_line + text.count("\n", 0, half.start()), last_line)
        raise UserError(
            f"{file}:{line}: half a surrogate pair, \\u{ord(half[0]):04x}",
            "it is no character, and no UTF-8 text can hold it",
            "write the character itself, or \\U with eight digits",
        )
    try:
        data = yaml.load(text, _Loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        line = min(first_line + (mark.line if mark else 0), last_line)
        problem = getattr(error, "problem", None) or str(error)
        raise UserError(f"{file}:{line}: {problem}", "this is not the YAML that the task format needs") from error
    return Document(data=data, file=file, text=text, first_line=first_line, last_line=last_line)


def read(path: Path, *, name: str | None = None) -> Document:
    """`parse` of a whole file; `name` is how messages call it.

    Raises:
        UserError: also when the file is not UTF-8 text.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{name or path}: not UTF-8 text", str(error)) from error
    return parse(text, file=name or str(path))


_DATA_ROOT = re.compile(r"\$(?:THINKINGBOX_DATA\b|\{THINKINGBOX_DATA\})")


def with_data_root(value: Any, root: str) -> Any:
    """`value` with ``$THINKINGBOX_DATA`` replaced in every text; other dollar signs are data and stay."""
    if isinstance(value, str):
        return _DATA_ROOT.sub(lambda _: root, value) if "$" in value else value
    if isinstance(value, dict):
        return {key: with_data_root(item, root) for key, item in value.items()}
    if isinstance(value, list):
        return [with_data_root(item, root) for item in value]
    return value
