"""Earlier conversation of a test: ``STEM.meta.yaml`` groups, referenced as ``group:start:end``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from stateward.errors import nearest
from stateward.tasks.section import Section, section
from stateward.tasks.yaml_text import Document, PathPart, read

Message = dict[str, Any]


class HistoryFile:
    """The ``$history`` groups of one ``.meta.yaml``; its other top-level entries belong to the dataset's authors."""

    def __init__(self, document: Document) -> None:
        self.document = document
        groups = (document.data or {}).get("$history") if isinstance(document.data or {}, dict) else None
        if groups is not None and not isinstance(groups, dict):
            raise document.mistake(("$history",), "$history must be a mapping of group names to messages")
        self.groups: dict[str, Any] = {k: v for k, v in (groups or {}).items() if not k.startswith("#")}

    def messages(self, reference: str, asked: Section) -> list[Message]:
        """The messages of ``group:start:end`` in chat form.

        `start` is an index or a message_id; `end` a message_id, exclusive, or empty for "to the end".

        Raises:
            UserError: the reference, a boundary or a message is wrong; with file and line.
        """
        parts = reference.rsplit(":", 2)
        if len(parts) != 3 or not parts[0]:
            raise asked.refuse("history", f"{reference!r} is not group:start:end", do='for instance "refund:0:"')
        group, start, end = parts
        raw = self.groups.get(group)
        if not isinstance(raw, list):
            raise asked.refuse(
                "history", f"there is no group {group!r} in {self.document.file}", do=nearest(group, self.groups)
            )
        first = self._index(raw, start, asked) if not start.isdecimal() else int(start)
        if first > len(raw):
            raise asked.refuse("history", f"group {group!r} has {len(raw)} messages; it cannot start at {first}")
        last = self._index(raw, end, asked) if end else len(raw)
        if last <= first and end:
            raise asked.refuse("history", f"in {reference!r}, the end does not come after the start")
        entries = [self._section(("$history", group, n), raw[n]) for n in range(first, last)]
        return _chat_form(entries)

    def _index(self, raw: list[Any], message_id: str, asked: Section) -> int:
        ids = [m.get("message_id") if isinstance(m, dict) else None for m in raw]
        if message_id not in ids:
            raise asked.refuse(
                "history",
                f"no message has the message_id {message_id!r}",
                do=nearest(message_id, [i for i in ids if isinstance(i, str)]),
            )
        return ids.index(message_id)

    def _section(self, path: tuple[PathPart, ...], value: Any) -> Section:
        keys = {
            "Text": ("role", "content"),
            "ToolCall": ("name", "arguments", "id"),
            "ParallelToolCall": ("tool_calls",),
            "ToolResponse": ("name", "content", "id"),
        }
        kind = value.get("T") if isinstance(value, dict) else None
        if kind not in keys:
            raise self.document.mistake((*path, "T"), f"a message has T: {kind!r}", do=nearest(str(kind), keys))
        entry = section(self.document, path, value, f"{kind} message", ("T", "message_id", "metadata", *keys[kind]))
        entry.require(*(key for key in keys[kind] if key not in ("arguments", "content")))
        return entry


def load_history(test_file: Path) -> HistoryFile | None:
    """The ``STEM.meta.yaml`` beside `test_file`, if there is one."""
    path = test_file.with_suffix(".meta.yaml")
    return HistoryFile(read(path, name=f"{path.parent.name}/{path.name}")) if path.is_file() else None


def _chat_form(entries: list[Section]) -> list[Message]:
    """Chat messages; a thought (tag ``think``) becomes the reasoning of the assistant message that follows it."""
    messages: list[Message] = []
    thought = ""
    for entry in entries:
        kind = entry.text("T")
        if kind == "Text":
            role = entry.text("role")
            if role not in ("system", "user", "assistant"):
                raise entry.refuse("role", f"unknown role {role!r}", do=nearest(role, ["system", "user", "assistant"]))
            if role == "assistant" and entry.mapping("metadata").get("tag") == "think":
                thought += entry.text("content")
                continue
            message: Message = {"role": role, "content": entry.text("content")}
        elif kind == "ToolResponse":
            message = {
                "role": "tool",
                "tool_call_id": entry.text("id"),
                "name": entry.text("name"),
                "content": entry.text("content"),
            }
        else:
            calls = [entry] if kind == "ToolCall" else _calls(entry)
            message = {"role": "assistant", "content": "", "tool_calls": [_call(call) for call in calls]}
        if thought and message["role"] == "assistant":
            message["reasoning_content"], thought = thought, ""
        messages.append(message)
    return messages


def _calls(entry: Section) -> list[Section]:
    keys = ("T", "message_id", "metadata", "name", "arguments", "id")
    found = []
    for number, item in enumerate(entry.items("tool_calls")):
        call = section(entry.document, (*entry.path, "tool_calls", number), item, "tool call", keys)
        call.require("name", "id")
        found.append(call)
    return found


def _call(entry: Section) -> dict[str, Any]:
    function = {"name": entry.text("name"), "arguments": entry.mapping("arguments")}
    call: dict[str, Any] = {"id": entry.text("id"), "type": "function", "function": function}
    error = entry.mapping("metadata").get("error")
    if error:
        call["error"] = str(error)  # it failed at the time: shown to the model, not replayed on the world
    return call
