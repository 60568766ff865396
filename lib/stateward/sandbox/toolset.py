"""Which tools of which server the model sees, and how they are described."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from stateward.errors import UserError, nearest
from stateward.sandbox.reserved import is_reserved, require
from stateward.tasks.task import Task, ToolPolicy, ToolSpec

_EMPTY_SCHEMA: dict[str, Any] = {"type": "object", "properties": {}}


def of_task(task: Task, servers: Sequence[tuple[str, list[dict[str, Any]]]]) -> tuple[list[ToolSpec], dict[str, int]]:
    """`arrange` of a task's servers, each of which takes the state that it is given.

    Raises:
        UserError: as `arrange` and `reserved.require` do.
    """
    for name, tools in servers:
        require(task.server_places.get(name) or task.uid, name, task.world.get(name) or {}, tools)
    return arrange(task.uid, servers, task.tools)


def arrange(
    uid: str, servers: Sequence[tuple[str, list[dict[str, Any]]]], policies: Sequence[ToolPolicy]
) -> tuple[list[ToolSpec], dict[str, int]]:
    """(the tools as the model sees them, tool name → position of its server).

    Of two servers with a tool of the same name the later one has it. Without policies every tool is visible, in the
    servers' order; with them, those named, in the scenario's order.

    Raises:
        UserError: a policy names a tool or an argument that no server has.
    """
    raw: dict[str, dict[str, Any]] = {}
    owner: dict[str, int] = {}
    for position, (_name, tools) in enumerate(servers):
        for tool in tools:
            if not is_reserved(tool["name"]):
                raw[tool["name"]], owner[tool["name"]] = tool, position
    if not policies:
        return [_spec(tool) for tool in raw.values()], owner
    specs = []
    for policy in policies:
        if policy.name not in raw:
            names = ", ".join(name for name, _tools in servers)
            raise UserError(
                f"{uid}: its scenario lists the tool {policy.name!r}",
                f"none of its servers ({names}) has a tool of that name",
                nearest(policy.name, raw),
            )
        specs.append(_overridden(uid, _spec(raw[policy.name]), policy))
    return specs, {policy.name: owner[policy.name] for policy in policies}


def described(tools: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """`tools` as a server lists them, each with its `ToolSpec` under ``spec``, made once for all its worlds."""
    return [{**tool, "spec": _spec(tool)} for tool in tools]


def _spec(tool: dict[str, Any]) -> ToolSpec:
    known: ToolSpec | None = tool.get("spec")
    if known is not None:
        return known
    schema = plain_schema(tool["inputSchema"] or _EMPTY_SCHEMA)
    return ToolSpec(name=tool["name"], description=tool["description"] or "", input_schema=schema)


def _overridden(uid: str, spec: ToolSpec, policy: ToolPolicy) -> ToolSpec:
    schema = spec.input_schema
    if policy.override_arg_description:
        schema = copy.deepcopy(schema)
        properties = schema.get("properties") or {}
        for argument, description in policy.override_arg_description.items():
            if argument not in properties:
                raise UserError(
                    f"{uid}: its scenario describes the argument {argument!r} of the tool {policy.name!r}",
                    "the tool has no such argument",
                    nearest(argument, properties),
                )
            properties[argument]["description"] = description
    return ToolSpec(name=spec.name, description=policy.override_description or spec.description, input_schema=schema)


def plain_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """A JSON Schema without references and generated titles, as chat templates expect it. The input is left alone.

    A reference that is circular or leads nowhere is left as it stands: its definitions then stay too.
    """
    dangling: list[str] = []
    plain = _resolved({key: value for key, value in schema.items() if key != "$defs"}, schema, (), dangling)
    if dangling and "$defs" in schema:
        plain["$defs"] = copy.deepcopy(schema["$defs"])
    plain.pop("title", None)
    for value in (plain.get("properties") or {}).values():
        if isinstance(value, dict):
            value.pop("title", None)
    result: dict[str, Any] = plain
    return result


def _resolved(node: Any, root: dict[str, Any], trail: tuple[str, ...], dangling: list[str]) -> Any:
    if isinstance(node, list):
        return [_resolved(item, root, trail, dangling) for item in node]
    if not isinstance(node, dict):
        return node
    reference = node.get("$ref")
    if not isinstance(reference, str):
        return {key: _resolved(value, root, trail, dangling) for key, value in node.items()}
    target = None if reference in trail else _pointed(root, reference)
    if target is None:
        dangling.append(reference)
        return dict(node)
    beside = {key: value for key, value in node.items() if key != "$ref"}
    return _resolved({**target, **beside}, root, (*trail, reference), dangling)


def _pointed(root: dict[str, Any], reference: str) -> dict[str, Any] | None:
    if not reference.startswith("#/"):
        return None
    node: Any = root
    for step in reference[2:].split("/"):
        node = node.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(node, dict) else None
    return node if isinstance(node, dict) else None
