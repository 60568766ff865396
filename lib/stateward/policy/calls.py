"""From what vLLM's tool parser found to calls that can be run or answered with an error.

A server hands on what its parser found and is silent about the rest: a call that is no JSON vanishes or stays in the
text, an argument without an end is left out, a call that the length limit cut is run with what there was. Here each of
them becomes a `ToolCall` with an error that the model sees.
"""

from __future__ import annotations

import json
import re
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from stateward.policy.arguments import read_arguments, unreadable
from stateward.policy.turn import ToolCall

CALL_START, CALL_END = "<tool_call>", "</tool_call>"
_FUNCTION = "<function="
_NAME = re.compile(r'<function=([^>\n]+)|"name"\s*:\s*"([^"]+)"')
_PARAMETER = re.compile(r"<\s*parameter\s*=\s*([^>]*)(?:>|\Z)")


def read_calls(
    parsed: Sequence[Any],
    said: str,
    schemas: Mapping[str, Mapping[str, Any]],
    problems: Counter[str],
    *,
    ended: bool,
    unread: str = "",
) -> list[ToolCall]:
    """The calls of one turn, those that the parser could not read at the end.

    Args:
        parsed: what the parser found, objects with `name` and `arguments` (JSON text).
        said: the turn's text from where vLLM looks for calls.
        schemas: of the arguments, by tool name.
        problems: counted up: bad_arguments, unknown_tool.
        ended: the turn ended with a stop token, so nothing was cut.
        unread: why the parser gave up on the turn, if it did.
    """
    regions = _regions(said) or [said] * bool(unread)
    aligned = regions if len(regions) == len(parsed) else [""] * len(parsed)
    # The last call is cut if the text ends before the call does; whatever can be parsed of it is not what was meant.
    tail = regions[-1] if regions else said
    cut = not ended and _FUNCTION in tail and not _is_whole(tail)
    calls = []
    for number, (call, region) in enumerate(zip(parsed, aligned, strict=True)):
        last = number == len(parsed) - 1
        calls.append(_read(call.name, call.arguments, region, schemas, problems, cut=cut and last))
    lost = len(regions) - len(parsed)
    return [*calls, *_unread_calls(regions, lost, parsed, schemas, problems, unread)] if lost > 0 else calls


def _regions(said: str) -> list[str]:
    """The text of each call, from behind its mark. A mark inside a call that is not whole yet is part of that call."""
    regions: list[str] = []
    for part in said.split(CALL_START)[1:]:
        if regions and not _is_whole(regions[-1]):
            regions[-1] += CALL_START + part
        else:
            regions.append(part)
    return regions


def _is_whole(region: str) -> bool:
    """XML calls end with ``</function>``, whatever their values hold; others with ``</tool_call>``."""
    at = region.rfind(_FUNCTION)
    return CALL_END in region if at < 0 else "</function>" in region[at:]


def _read(
    name: str,
    arguments: str | None,
    region: str,
    schemas: Mapping[str, Mapping[str, Any]],
    problems: Counter[str],
    *,
    cut: bool,
) -> ToolCall:
    value, error = read_arguments(name, arguments or "{}")
    if not error and name not in schemas:
        problems["unknown_tool"] += 1
        error = f"there is no tool {name!r}; the tools are {', '.join(sorted(schemas)) or 'none'}"
        return ToolCall(id=new_call_id(), name=name, arguments=value, error=error)
    if not error and cut:
        error = f"this call of {name} was cut off by the length limit and was not run"
    if not error:
        from vllm.tool_parsers.utils import coerce_to_schema_type

        open_ended = [found for found in _PARAMETER.findall(region) if found not in value]
        wrong = [f"argument {found[:80]!r} has no </parameter>" for found in open_ended]
        wrong += unreadable(value, schemas[name], coerce_to_schema_type)
        error = f"{name}: {'; '.join(wrong)}" if wrong else ""
    problems["bad_arguments"] += bool(error)
    return ToolCall(id=new_call_id(), name=name, arguments=value, error=error)


def _why_unread(region: str) -> str:
    """Why no parser can make a call of this text; empty if it looks like one."""
    body = region.split(CALL_END)[0].strip()
    if _FUNCTION in body:
        return ""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as bad:
        return f"it is not valid JSON: {bad}" if body.startswith("{") else "it names no function"
    if not isinstance(value, dict):
        return "it is not an object"
    missing = [key for key in ("name", "arguments") if key not in value]
    return f"it has no {' and no '.join(missing)}" if missing else ""


def _unread_calls(
    regions: Sequence[str],
    lost: int,
    parsed: Sequence[Any],
    schemas: Mapping[str, Any],
    problems: Counter[str],
    unread: str,
) -> list[ToolCall]:
    """Errors for `lost` of the regions: the malformed ones, or all if the parser gave up on the whole turn."""
    reasons = [_why_unread(region) for region in regions]
    if unread:
        default = unread
    elif not schemas:
        default = "there are no tools"
    elif any(reasons):
        default = "another call of this turn could not be read"
    else:
        default = "it is not written as this model's calls are"
    found = list(zip(regions, reasons, strict=True))
    if parsed and any(reasons):
        found = [(region, reason) for region, reason in found if reason]
    calls = []
    for region, reason in found[-lost:]:
        match = _NAME.search(region)
        name = next((group for group in match.groups() if group), "") if match else ""
        body = region.split(CALL_END)[0].strip()
        shown = body if len(body) <= 120 else body[:120] + "…"
        calls.append(
            ToolCall(id=new_call_id(), name=name.strip(), error=f"this call was not run: {reason or default}: {shown}")
        )
    problems["bad_arguments"] += len(calls)
    return calls


def new_call_id() -> str:
    """An id as vLLM makes them."""
    return f"call_{uuid.uuid4().hex[:24]}"
