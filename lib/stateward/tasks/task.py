"""A hydrated task: the values that `sandbox`, `policy`, `episode` and `grading` need, and nothing of the files behind."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from stateward.outcome import fingerprint


@dataclass(frozen=True, kw_only=True)
class ToolSpec:
    """One tool as the model sees it. `input_schema` is JSON Schema of the arguments object."""

    name: str
    description: str = ""
    input_schema: dict[str, Any] = field(default_factory=lambda: {"type": "object", "properties": {}})

    def to_openai(self) -> dict[str, Any]:
        """The ``tools`` entry of a chat request or chat template."""
        return {
            "type": "function",
            "function": {"name": self.name, "description": self.description, "parameters": self.input_schema},
        }


@dataclass(frozen=True, kw_only=True)
class ToolPolicy:
    """What a scenario says of one tool of a server. Empty means: as the server has it.

    `direct_response` is a format string shown to the user in place of the assistant's next message.
    `is_end_turn` ends the conversation once the tool was called.
    """

    name: str
    override_description: str = ""
    override_arg_description: dict[str, str] = field(default_factory=dict)
    direct_response: str = ""
    is_end_turn: bool = False


@dataclass(frozen=True, kw_only=True)
class ServerSpec:
    """How one tool server is reached (an entry of servers.yaml).

    kind: ``mcp-process`` or ``mcp-remote``. `command` is a list of arguments, `{python}` already formatted.
    `fork` False says: never fork this server, run it as a process.
    """

    name: str
    kind: str = "mcp-process"
    command: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    cwd: str = ""
    endpoint: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    timeout: float = 30.0
    transport: str = "streamable-http"
    fork: bool = True


@dataclass(frozen=True, kw_only=True)
class Check:
    """The executable check of the final state: source text with line numbers kept, and the function to call."""

    file: str
    function: str
    source: str


@dataclass(frozen=True, kw_only=True)
class Task:
    """A prompt, tools, an initial world state and an executable check of the final state.

    Attributes:
        uid: ``file.py:test_name``.
        domain: value of the tag ``domain:NAME``, otherwise the file's stem.
        system: system message: agent instructions, then the scenario's and the test's bot instructions.
        query: the first user message. user_context: what the simulated user knows.
        world: merged initial state, {server: config}.
        servers: the servers of `world`, in order.
        tools: allowed tools of the servers, in the scenario's order; empty = all. builtin_tools: the agent's own.
        history: earlier messages, replayed on the world before the query.
        format_query: fill `{...}` in query, user_context and system from the servers' init results.
        end_turn_tools: names of tools (server or built-in) after which the conversation ends.
    """

    uid: str
    domain: str
    system: str
    query: str
    check: Check
    user_context: str = ""
    world: dict[str, Any] = field(default_factory=dict)
    servers: tuple[ServerSpec, ...] = ()
    tools: tuple[ToolPolicy, ...] = ()
    builtin_tools: tuple[ToolSpec, ...] = ()
    end_turn_tools: frozenset[str] = frozenset()
    history: tuple[dict[str, Any], ...] = ()
    max_user_turns: int = 10
    max_agent_turns: int | None = None
    format_query: bool = False
    tags: tuple[str, ...] = ()
    metadata: dict[str, Any] = field(default_factory=dict)

    @property
    def world_fingerprint(self) -> str:
        """Identity of the initial world: servers and their configs."""
        return fingerprint([[s.name, list(s.command), self.world.get(s.name)] for s in self.servers])
