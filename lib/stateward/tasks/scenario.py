"""``scenario/NAME.yaml`` and ``agent/NAME.yaml``: the world, the tools and the instructions that many tests share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stateward.errors import UserError, nearest
from stateward.tasks.fixtures import FIXTURES, read_fixtures
from stateward.tasks.section import section
from stateward.tasks.tags import flat_tags
from stateward.tasks.task import FixtureSpec, ToolPolicy, ToolSpec
from stateward.tasks.yaml_text import Document, PathPart, read


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A scenario file's content. `world` maps servers to their configuration, in the order they start."""

    document: Document
    world: dict[str, dict[str, Any]]
    tools: tuple[ToolPolicy, ...]
    bot_instructions: str
    tags: list[str]
    fixtures: dict[str, FixtureSpec]
    metadata: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Agent:
    """An agent file's content."""

    system_instructions: str
    builtin_tools: tuple[ToolSpec, ...]
    end_turn_tools: frozenset[str]


def load_scenario(folder: Path, name: str, *, asked_by: str) -> Scenario:
    """``folder/NAME.yaml``; `asked_by` is the place that names it.

    Raises:
        UserError: no such scenario, or a mistake in it.
    """
    document = _read(folder, name, "scenario", asked_by)
    keys = ("world_state", "tools", "bot_instructions", "tags", FIXTURES, "metadata")
    top = section(document, (), document.data, f"scenario {name}", keys)
    top.require("world_state", "tools")
    world = server_configs(document, "world_state", top.mapping("world_state"))
    return Scenario(
        document=document,
        world=world,
        tools=_tool_policies(document, top.items("tools")),
        bot_instructions=top.text("bot_instructions"),
        tags=flat_tags(document, top.values.get("tags")),
        fixtures=read_fixtures(document, top.mapping(FIXTURES)),
        metadata=top.mapping("metadata"),
    )


def load_agent(folder: Path, name: str) -> Agent:
    """``folder/NAME.yaml``.

    Raises:
        UserError: no such agent, or a mistake in it.
    """
    document = _read(folder, name, "agent", "")
    # The last three stand in public files; the public framework reads none of them.
    keys = ("system_instructions", "builtin_tools", "parallel_tool_calls", "inject_after_user", "inject_after_tool")
    top = section(document, (), document.data, f"agent {name}", keys)
    top.require("system_instructions")
    for key in ("inject_after_user", "inject_after_tool"):
        if key in top:
            raise top.refuse(key, f"{key!r} is not supported", "nothing would be injected", f"write {key}: null")
    top.flag("parallel_tool_calls")
    tools, ends = [], set()
    for number, item in enumerate(top.items("builtin_tools")):
        path = ("builtin_tools", number)
        tool = section(document, path, item, "built-in tool", ("name", "description", "input_schema", "is_end_turn"))
        tool.require("name")
        schema = tool.mapping("input_schema") or ToolSpec(name="").input_schema
        tools.append(ToolSpec(name=tool.text("name"), description=tool.text("description"), input_schema=schema))
        if tool.flag("is_end_turn"):
            ends.add(tool.text("name"))
    _refuse_repeats(document, "builtin_tools", [tool.name for tool in tools])
    return Agent(
        system_instructions=top.text("system_instructions"), builtin_tools=tuple(tools), end_turn_tools=frozenset(ends)
    )


def server_configs(document: Document, key: str, value: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The mapping of servers to configurations at `key`; a server without one gets ``{}``."""
    for server, config in value.items():
        if config is not None and not isinstance(config, dict):
            raise document.mistake((key, server), f"the configuration of server {server!r} must be a mapping")
    return {server: config or {} for server, config in value.items()}


def _tool_policies(document: Document, items: list[Any]) -> tuple[ToolPolicy, ...]:
    keys = ("name", "override_description", "override_arg_description", "direct_response", "is_end_turn")
    policies = []
    for number, item in enumerate(items):
        tool = section(document, ("tools", number), item, "tool", keys)
        tool.require("name")
        policies.append(
            ToolPolicy(
                name=tool.text("name"),
                override_description=tool.text("override_description"),
                override_arg_description=tool.text_map("override_arg_description"),
                direct_response=tool.text("direct_response"),
                is_end_turn=tool.flag("is_end_turn"),
            )
        )
    _refuse_repeats(document, "tools", [policy.name for policy in policies])
    return tuple(policies)


def _refuse_repeats(document: Document, key: PathPart, names: list[str]) -> None:
    for number, name in enumerate(names):
        if name in names[:number]:
            raise document.mistake((key, number), f"tool {name!r} is listed twice", do="remove one of them")


def _read(folder: Path, name: str, what: str, asked_by: str) -> Document:
    path = folder / f"{name}.yaml"
    if not path.is_file():
        place = f"{asked_by}: " if asked_by else ""
        known = [p.stem for p in folder.glob("*.yaml")]
        raise UserError(f"{place}there is no {what} {name!r}", f"{path} does not exist", nearest(name, known))
    return read(path, name=f"{folder.name}/{path.name}")
