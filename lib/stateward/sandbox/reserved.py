"""The reserved tools of a server: which there are, their arguments, and what their answers mean."""

from __future__ import annotations

import asyncio
import difflib
from typing import Any

from stateward.errors import SystemFault, UserError
from stateward.sandbox.server import ServerSession
from stateward.strict_json import read_json

INIT, STATE, TEARDOWN = "__reserved__init", "__reserved__geteffects", "__reserved__teardown"
PREFIX = "__reserved__"
_WORD = "reserved"
_CAUSE_CHARACTERS = 2_000


def is_reserved(name: str) -> bool:
    """Whether a tool is none of the model's: it is reserved, or its name is a slip of such a name."""
    return name.startswith(PREFIX) or _meant(name) is not None


def _meant(name: str) -> str | None:
    """The reserved tool that `name` is, or is a slip of; None for any other name, such as ``reserved_tables``."""
    word = name.lower().replace("_", "")
    if not word.startswith(_WORD):
        return None
    rests = {known.replace("_", "").removeprefix(_WORD): known for known in (INIT, STATE, TEARDOWN)}
    near = difflib.get_close_matches(word.removeprefix(_WORD), rests, n=1, cutoff=0.8)
    return rests[near[0]] if near else None


def require(place: str, server: str, config: dict[str, Any], tools: list[dict[str, Any]]) -> None:
    """Raise UserError if the server has a misspelt reserved tool, or gets a state that it has no tool for.

    Args:
        place: of the server in the task's world state, as file:line.
    """
    names = {tool["name"] for tool in tools}
    missing = [name for name in (INIT, STATE, TEARDOWN) if name not in names]
    slips = {
        name: meant
        for name in sorted(names - {INIT, STATE, TEARDOWN})
        if (meant := _meant(name)) is not None and meant in missing
    }
    for name, meant in slips.items():
        raise UserError(
            f"{place}: server {server!r} has a tool {name!r}",
            f"nothing calls it; it has no {meant}",
            f"name it {meant}",
        )
    if config and INIT in missing:
        raise UserError(
            f"{place} gives server {server!r} a state, and it has no {INIT}",
            "the state would be dropped, and the world be an empty one",
            "give the server that tool, or take the state away",
        )


def call_of(
    tools: list[dict[str, Any]], name: str, arguments: dict[str, Any], session_id: str
) -> dict[str, Any] | None:
    """The call ``{"tool", "arguments"}``, with `session_id` where declared; None if the server has no such tool."""
    if not any(tool["name"] == name for tool in tools):
        return None
    if wants_session(tools, name):
        arguments = {**arguments, "session_id": session_id}
    return {"tool": name, "arguments": arguments}


def wants_session(tools: list[dict[str, Any]], name: str) -> bool:
    """Whether the tool declares a `session_id` argument."""
    return any(
        tool["name"] == name and "session_id" in ((tool["inputSchema"] or {}).get("properties") or {}) for tool in tools
    )


async def initialise(server: ServerSession, call: dict[str, Any] | None, deadline: float) -> dict[str, Any]:
    """Make the init call in a world and return what it gave; ``{}`` if the server has none.

    Raises:
        SystemFault: "init" if it failed or took longer than `deadline` seconds.
    """
    if call is None:
        return {}
    try:
        async with asyncio.timeout(deadline):
            text, is_error = await server.call(call["tool"], call["arguments"])
    except TimeoutError:
        raise SystemFault("init", f"server {server.name!r}: init took longer than {deadline:g} s") from None
    if is_error:
        raise SystemFault("init", f"server {server.name!r}: {text[:_CAUSE_CHARACTERS]}")
    return parse_init(server.name, text)


def parse_init(server: str, text: str) -> dict[str, Any]:
    """What init returned, without its status. The format's rule: ``{}`` or ``{"status": "ok", ...}``.

    Raises:
        SystemFault: "init" for any other answer.
    """
    try:
        value = read_json(text)
    except ValueError as error:
        raise SystemFault("init", _no_json(server, INIT, text, error)) from None
    if value == {}:
        return {}
    if isinstance(value, dict) and value.pop("status", None) == "ok":
        return value
    raise SystemFault("init", f"server {server!r}: {INIT} answered {text[:_CAUSE_CHARACTERS]!r} instead of status ok")


def parse_state(server: str, text: str, is_error: bool) -> dict[str, Any]:
    """The state object.

    Raises:
        SystemFault: "sandbox" for a server's error or an answer that is no JSON object. NaN and infinities are no JSON.
    """
    if is_error:
        raise SystemFault("sandbox", f"server {server!r}: {STATE} failed: {text[:_CAUSE_CHARACTERS]}")
    try:
        value = read_json(text)
    except ValueError as error:
        raise SystemFault("sandbox", _no_json(server, STATE, text, error)) from None
    if not isinstance(value, dict):
        raise SystemFault(
            "sandbox", f"server {server!r}: {STATE} answered {text[:_CAUSE_CHARACTERS]!r}, which is not a JSON object"
        )
    return value


def _no_json(server: str, tool: str, text: str, error: ValueError) -> str:
    return f"server {server!r}: {tool} answered {text[:_CAUSE_CHARACTERS]!r}, which is not JSON: {error}"
