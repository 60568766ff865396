"""A conversation as test code sees it (names and fields of ``thinkingbox.common.chat_types``)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from typing import Any


class Record:
    """What test code may expect of any value here: ``model_dump()``."""

    def model_dump(self) -> dict[str, Any]:
        return asdict(self)  # type: ignore[call-overload, no-any-return]


@dataclass(kw_only=True)
class Message(Record):
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass(kw_only=True)
class Text(Message):
    """Something said. Tag ``think`` is reasoning, ``direct`` a tool's direct response, ``text`` the rest."""

    role: str
    content: str
    T: str = "Text"

    @property
    def tag(self) -> str:
        return str(self.metadata.get("tag", "text"))

    @property
    def is_visible(self) -> bool:
        return self.tag != "think"


@dataclass(kw_only=True)
class ToolCall(Message):
    name: str
    arguments: dict[str, Any] = field(default_factory=dict)
    id: str = ""
    T: str = "ToolCall"


@dataclass(kw_only=True)
class ParallelToolCall(Message):
    tool_calls: list[ToolCall] = field(default_factory=list)
    T: str = "ParallelToolCall"


@dataclass(kw_only=True)
class ToolResponse(Message):
    name: str
    content: str
    id: str = ""
    T: str = "ToolResponse"


@dataclass(kw_only=True)
class ToolCallResponse(Record):
    tool_call: ToolCall
    tool_response: ToolResponse


@dataclass(kw_only=True)
class Conversation(Record):
    messages: list[Message] = field(default_factory=list)
    metadata: dict[str, Any] = field(default_factory=dict)


def from_chat(messages: Iterable[dict[str, Any]]) -> list[Message]:
    """Chat messages as test code sees them: one chat message may become reasoning, text and calls.

    A message that says ``direct`` is what a tool showed to the user.
    """
    out: list[Message] = []
    for message in messages:
        role, content = message["role"], message.get("content") or ""
        if role == "tool":
            out.append(ToolResponse(name=message.get("name", ""), content=content, id=message.get("tool_call_id", "")))
            continue
        if message.get("reasoning_content"):
            out.append(Text(role=role, content=message["reasoning_content"], metadata={"tag": "think"}))
        if content or role != "assistant":  # an agent's turn without text says nothing, and is no message
            metadata: dict[str, Any] = {}
            if message.get("direct"):
                metadata["tag"] = "direct"
            elif role == "assistant" and content.rstrip().endswith("<DONE>"):
                metadata["is_done"] = True
            out.append(Text(role=role, content=content, metadata=metadata))
        if message.get("tool_calls"):
            out.append(ParallelToolCall(tool_calls=[_tool_call(call) for call in message["tool_calls"]]))
    return out


def _tool_call(call: dict[str, Any]) -> ToolCall:
    metadata = {"error": call["error"]} if call.get("error") else {}
    function = call["function"]
    return ToolCall(name=function["name"], arguments=function["arguments"], id=call.get("id", ""), metadata=metadata)


def transcript(
    messages: Iterable[Message], limit: int = 0, content_transform_fn: Callable[[str], str] | None = None
) -> str:
    """What user and assistant said to each other, as ``User: …`` and ``Assistant: …`` paragraphs.

    With a `limit` above 0, only its end: back to the `limit`-th last assistant text.

    Raises:
        ValueError: `limit` is negative.
    """
    if limit < 0:
        raise ValueError("limit must be at least 0")
    said = [m for m in messages if isinstance(m, Text) and m.role in ("user", "assistant")]
    said = [m for m in said if m.is_visible and not m.metadata.get("is_dummy")]
    if limit:
        answers = [number for number, m in enumerate(said) if m.role == "assistant"]
        said = said[answers[-limit] :] if len(answers) >= limit else said
    change = content_transform_fn or (lambda text: text)
    return "\n\n".join(f"{m.role.capitalize()}: {change(m.content)}" for m in said)
