"""What stands in for a model: the calls that solve a task, and the text that ends it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stateward.errors import UserError
from stateward.tasks.yaml_text import read

Call = tuple[str, dict[str, Any]]


@dataclass(frozen=True)
class Script:
    """Tool calls in order, and the assistant's last text."""

    calls: list[Call]
    response: str = ""


def read_scripts(path: Path) -> dict[str, Script]:
    """Scripts by uid from a YAML file {uid: [{tool: arguments}, {say: text}, ...]}.

    Raises:
        UserError: no such file, or another form; with file and line.
    """
    if not path.is_file():
        raise UserError(f"{path}: no such file of calls", do="name a YAML of {uid: [{tool: arguments}, {say: text}]}")
    document = read(path)
    if not isinstance(document.data, dict):
        raise document.mistake((), "calls must be a mapping of uids to lists")
    found = {}
    for uid, entries in document.data.items():
        calls: list[Call] = []
        response = ""
        for number, entry in enumerate(entries if isinstance(entries, list) else [entries]):
            if not isinstance(entry, dict) or len(entry) != 1:
                raise document.mistake(
                    (uid, number), f"{entry!r} is not one call", do="write - tool: {argument: value}"
                )
            ((name, value),) = entry.items()
            if name == "say" and isinstance(value, str):
                response = value
            elif name != "say" and isinstance(value or {}, dict):
                calls.append((name, value or {}))
            else:
                raise document.mistake((uid, number, name), f"{value!r} is not what {name} takes")
        found[uid] = Script(calls, response)
    return found
