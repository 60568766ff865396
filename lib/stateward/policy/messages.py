"""Chat messages as a template wants them: arguments as mappings, no missing content, systems merged on demand."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

Message = dict[str, Any]


def for_template(messages: Iterable[Message]) -> list[Message]:
    """Copies of `messages` that every Qwen-family template can render.

    OpenAI's wire form keeps a call's arguments as a JSON string; templates iterate over a mapping. A missing or null
    content becomes the empty string. ``reasoning`` (vLLM's name) is also given as ``reasoning_content``.
    Arguments that are not a JSON object stay what they are; the template then says what it cannot do with them.
    """
    out = []
    for message in messages:
        copy = dict(message)
        if copy.get("content") is None:
            copy["content"] = ""
        if copy.get("reasoning") and not copy.get("reasoning_content"):
            copy["reasoning_content"] = copy["reasoning"]
        if copy.get("tool_calls"):
            copy["tool_calls"] = [_mapping_arguments(call) for call in copy["tool_calls"]]
        else:
            copy.pop("tool_calls", None)
        out.append(copy)
    return out


def merge_systems(messages: Sequence[Message]) -> list[Message]:
    """Join each run of consecutive system messages into one, contents separated by an empty line."""
    out: list[Message] = []
    for message in messages:
        if message["role"] == "system" and out and out[-1]["role"] == "system":
            parts = [part for part in (out[-1]["content"], message["content"]) if part]
            out[-1] = {**out[-1], "content": "\n\n".join(parts)}
        else:
            out.append(dict(message))
    return out


def _mapping_arguments(call: dict[str, Any]) -> dict[str, Any]:
    function = dict(call.get("function", call))
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            parsed = json.loads(arguments or "{}")
        except json.JSONDecodeError:
            parsed = None
        if isinstance(parsed, dict):
            function["arguments"] = parsed
    elif arguments is None:
        function["arguments"] = {}
    return {**call, "function": function} if "function" in call else function
