"""Read a mapping of a YAML document key by key: known keys, right types, and the place of what is wrong."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from stateward.errors import nearest
from stateward.tasks.yaml_text import Document, PathPart


@dataclass(frozen=True)
class Section:
    """The mapping at `path` of `document`; `what` names it in messages ("scenario", "tool")."""

    document: Document
    path: tuple[PathPart, ...]
    values: dict[str, Any]
    what: str

    def __contains__(self, key: str) -> bool:
        return self.values.get(key) is not None

    def refuse(self, key: str, problem: str, why: str = "", do: str = "") -> Exception:
        return self.document.mistake((*self.path, key), f"{self.what}: {problem}", why, do)

    def require(self, *keys: str) -> None:
        """Every one of `keys` is there with a value."""
        for key in keys:
            if key not in self:
                raise self.document.mistake(
                    self.path, f"{self.what} has no {key!r}", "the task format needs it", f"add {key}: …"
                )

    def text(self, key: str, default: str = "") -> str:
        value = self.values.get(key)
        if value is None:
            return default
        if not isinstance(value, str):
            raise self.refuse(key, f"{key!r} must be text, not {_kind(value)}", do="put it in quotes")
        return value

    def flag(self, key: str, default: bool = False) -> bool:
        value = self.values.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.refuse(key, f"{key!r} must be true or false, not {value!r}")
        return value

    def whole(self, key: str) -> int | None:
        """A whole number of at least 0, or None when absent."""
        value = self.values.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise self.refuse(key, f"{key!r} must be a whole number of at least 0, not {value!r}")
        return value

    def number(self, key: str, default: float) -> float:
        value = self.values.get(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
            raise self.refuse(key, f"{key!r} must be a number above 0, not {value!r}")
        return float(value)

    def mapping(self, key: str) -> dict[str, Any]:
        value = self.values.get(key)
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise self.refuse(key, f"{key!r} must be a mapping, not {_kind(value)}")
        return value

    def items(self, key: str) -> list[Any]:
        value = self.values.get(key)
        if value is None:
            return []
        if not isinstance(value, list):
            raise self.refuse(key, f"{key!r} must be a list, not {_kind(value)}")
        return value

    def texts(self, key: str) -> list[str]:
        items = self.items(key)
        for number, item in enumerate(items):
            if not isinstance(item, str):
                raise self.document.mistake(
                    (*self.path, key, number), f"{self.what}: {key!r} must hold texts, not {_kind(item)}"
                )
        return items

    def text_map(self, key: str) -> dict[str, str]:
        found = self.mapping(key)
        for name, value in found.items():
            if not isinstance(value, str):
                raise self.document.mistake(
                    (*self.path, key, name), f"{self.what}: {key}.{name} must be text, not {_kind(value)}"
                )
        return found


def section(document: Document, path: tuple[PathPart, ...], value: Any, what: str, keys: Iterable[str]) -> Section:
    """`value` as a section in which only `keys` may stand.

    Raises:
        UserError: not a mapping, or an unknown key; with file, line and the nearest valid name.
    """
    if not isinstance(value, dict):
        raise document.mistake(path, f"{what} must be a mapping of names to values, not {_kind(value)}")
    valid = set(keys)
    for key in value:
        if key not in valid:
            raise document.mistake(
                (*path, key), f"{what} has an unknown key {key!r}", "nothing would read it", nearest(key, valid)
            )
    return Section(document, path, value, what)


def _kind(value: Any) -> str:
    names = {dict: "a mapping", list: "a list", str: "text", bool: "true/false", int: "a number", float: "a number"}
    return "nothing" if value is None else names.get(type(value), type(value).__name__)
