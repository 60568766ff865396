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
from stateward.policy.thinking import THINK_END
from stateward.policy.turn import ToolCall

CALL_START, CALL_END = "<tool_call>", "</tool_call>"
_FUNCTION = "<function="
_NAME = re.compile(r'<function=([^>\n]+)|"name"\s*:\s*"([^"]+)"')
_VALUE = re.compile(r"<\s*parameter\s*=[^>]*>.*?</parameter>", re.DOTALL)
_VALUE_NAME = re.compile(r"<\s*parameter\s*=\s*([^>]*)>")
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
    aligned, lost = _aligned(parsed, regions)
    # The last call is cut if the text ends before the call does; whatever can be parsed of it is not what was meant.
    tail = regions[-1] if regions else said
    cut = not ended and _FUNCTION in tail and not _is_whole(tail)
    calls = []
    for number, (call, region) in enumerate(zip(parsed, aligned, strict=True)):
        open_ended = _is_open(region) and region is not regions[-1]
        in_cut = cut and number == len(parsed) - 1
        calls.append(_read(call.name, call.arguments, region, schemas, problems, cut=in_cut, open_ended=open_ended))
    if any(_is_open(region) for region in regions[:-1]):
        unread = unread or "the call before it has no </function>"
    flawed = any(_why_unread(region) for region in regions)
    return [*calls, *_unread_calls(lost, flawed, schemas, problems, unread)]


def _is_open(region: str) -> bool:
    """Whether an XML call ends without any mark of an end."""
    return _FUNCTION in region and "</function>" not in region and CALL_END not in region


def _aligned(parsed: Sequence[Any], regions: Sequence[str]) -> tuple[list[str], list[str]]:
    """The region of each parsed call ("" where none is left), and the regions of which nothing was parsed.

    A parser reads one of the two ways to write a call, or none of a turn's calls. So where both were written and
    something was parsed, that is an XML call; of several the names decide, then the order.
    """
    if len(parsed) == len(regions):
        return list(regions), []
    if len(parsed) > len(regions):  # calls without the mark in front, which some parsers take: no telling them apart
        return [""] * len(parsed), []
    order = range(len(regions))
    free = sorted(order, key=lambda i: (_FUNCTION not in regions[i], bool(_why_unread(regions[i])), i))
    taken: list[int | None] = []
    for call in parsed:
        named = [i for i in free if _name(regions[i]) == call.name]
        found = next(iter(named or free), None)
        taken.append(found)
        free = [i for i in free if i != found]
    return [regions[i] if i is not None else "" for i in taken], [regions[i] for i in sorted(free)]


def _name(region: str) -> str:
    """The tool that a call names; empty if it names none."""
    match = _NAME.search(region)
    return next((group for group in match.groups() if group), "").strip() if match else ""


def _regions(said: str) -> list[str]:
    """The text of each call, from behind its mark. A mark inside a call's value or its JSON is part of that call."""
    regions: list[str] = []
    for part in said.split(CALL_START)[1:]:
        if regions and not _is_whole(regions[-1]) and not (_FUNCTION in part and _between_values(regions[-1])):
            regions[-1] += CALL_START + part
        else:
            regions.append(part)
    return regions


def _is_whole(region: str) -> bool:
    """XML calls end with ``</function>``, whatever their values hold; others with ``</tool_call>``."""
    at = region.rfind(_FUNCTION)
    return CALL_END in region if at < 0 else "</function>" in region[at:]


def _between_values(region: str) -> bool:
    """Whether an XML call has begun, and no value of it is open at the end."""
    return _FUNCTION in region and "<" not in _rest(region).replace(_FUNCTION, "", 1)


def _rest(region: str) -> str:
    """What of an XML call is neither its name nor a whole parameter."""
    start, _, body = _VALUE.sub("", region).partition(_FUNCTION)
    return start.strip() + _FUNCTION + body.partition("</function>")[0].partition(">")[2].strip()


def _unnoticed(region: str, value: Mapping[str, Any]) -> list[str]:
    """What parsers pass over in an XML call in silence, in words: a call may not be run with less than it says."""
    if _FUNCTION not in region:
        return []
    found = []
    rest = _rest(region.partition(CALL_END)[0]).partition(_FUNCTION)[2]
    if rest and not _PARAMETER.search(rest):
        found.append(
            f"{rest[:80]!r} stands outside of its parameters; one is written <parameter=NAME>VALUE</parameter>"
        )
    names = [name.strip() for name in _VALUE_NAME.findall(region)]
    found += [f"argument {name[:80]!r} is given twice" for name in dict.fromkeys(names) if names.count(name) > 1]
    if THINK_END in region.partition("</function>")[0] and THINK_END not in json.dumps(value):
        found.append(f"a value holds {THINK_END}, which is lost on the way")
    return found


def _read(
    name: str,
    arguments: str | None,
    region: str,
    schemas: Mapping[str, Mapping[str, Any]],
    problems: Counter[str],
    *,
    cut: bool,
    open_ended: bool,
) -> ToolCall:
    value, error = read_arguments(name, arguments or "{}")
    if not error and name not in schemas:
        problems["unknown_tool"] += 1
        error = f"there is no tool {name!r}; the tools are {', '.join(sorted(schemas)) or 'none'}"
        return ToolCall(id=new_call_id(), name=name, arguments=value, error=error)
    if not error and cut:
        error = f"this call of {name} was cut off by the length limit and was not run"
    if not error and open_ended:
        error = f"this call of {name} has no </function>, another call follows it, and it was not run"
    if not error:
        from vllm.tool_parsers.utils import coerce_to_schema_type

        lost = [found for found in _PARAMETER.findall(region) if found not in value]
        ended = [found for match in _VALUE.findall(region) for found in _VALUE_NAME.findall(match)]
        wrong = [
            f"argument {found[:80]!r} "
            + ("was lost: it holds a mark of a call" if found in ended else "has no </parameter>")
            for found in lost
        ]
        wrong += _unnoticed(region, value)
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
    lost: Sequence[str], flawed: bool, schemas: Mapping[str, Any], problems: Counter[str], unread: str
) -> list[ToolCall]:
    """Errors for the regions of which nothing was parsed.

    Args:
        flawed: a call of the turn could not be read by any parser.
        unread: why the parser gave up on the whole turn, if it did.
    """
    if unread:
        default = unread
    elif not schemas:
        default = "there are no tools"
    elif flawed:
        default = "another call of this turn could not be read"
    else:
        default = "it is not written as this model's calls are"
    calls = []
    for region in lost:
        body = region.split(CALL_END)[0].strip()
        shown = body if len(body) <= 120 else body[:120] + "…"
        reason = _why_unread(region) or default
        if _is_open(region):
            reason = "it has no </function>"
        calls.append(ToolCall(id=new_call_id(), name=_name(region), error=f"this call was not run: {reason}: {shown}"))
    problems["bad_arguments"] += len(calls)
    return calls


def new_call_id() -> str:
    """An id as vLLM makes them."""
    return f"call_{uuid.uuid4().hex[:24]}"
