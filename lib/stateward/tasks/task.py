"""A hydrated task: the values that sandbox, policy, episode and grading need, and nothing of the files behind."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any

from stateward.errors import SystemFault
from stateward.outcome import fingerprint

#: What the model reads when a tool's result does not fill its direct response (the public framework's words).
DIRECT_FAILED = "Error in function execution"


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

    `direct_response` is a format string: filled from the tool's result, it is shown to the user as a message of the
    assistant (`direct_text`), and the policy goes on from there.
    `is_end_turn` ends the conversation: the tool is not run, and neither are other calls of the same turn.
    """

    name: str
    override_description: str = ""
    override_arg_description: dict[str, str] = field(default_factory=dict)
    direct_response: str = ""
    is_end_turn: bool = False

    def direct_text(self, result: str) -> str:
        """`direct_response` with the fields of `result`, which must be a JSON object.

        Raises:
            ValueError: `result` is something else, or lacks what the format names.
        """
        fields = json.loads(result)
        if not isinstance(fields, dict):
            raise ValueError(f"{result[:80]!r} is not a JSON object")
        try:
            return self.direct_response.format(**fields)
        except (LookupError, AttributeError, TypeError) as error:
            raise ValueError(f"cannot fill {self.direct_response[:80]!r}: {type(error).__name__} {error}") from error


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
class FixtureSpec:
    """An object that a check asks for by a parameter's name: `type` is a dotted name, called with `parameters`."""

    name: str
    type: str
    parameters: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Check:
    """The executable check of the final state: source text with line numbers kept, and the function to call.

    `fixtures` are those that the dataset defines for it; the function's parameters say which are made.
    """

    file: str
    function: str
    source: str
    fixtures: tuple[FixtureSpec, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Task:
    """A prompt, tools, an initial world state and an executable check of the final state.

    Attributes:
        uid: ``file.py:test_name``.
        domain: value of the tag ``domain:NAME``, otherwise the name of the file's subfolder, otherwise the file's stem.
        system: system message: agent instructions, then the scenario's and the test's bot instructions.
        query: the first user message. user_context: what the simulated user knows.
        bot_instructions: the test's own, which end `system`; kept apart because only they are filled by `filled`.
        world: merged initial state, {server: config}.
        servers: the servers of `world`, in order. server_places: where each is given its state, as file:line.
        tools: allowed tools of the servers, in the scenario's order; empty = all. builtin_tools: the agent's own.
        history: earlier messages in chat form (tool call arguments are objects); their calls are replayed on the
            world before the query, except built-in tools' and those marked ``error``, which failed at the time.
        format_query: `filled` has work to do.
        end_turn_tools: names of tools (server or built-in) whose call ends the conversation.
    """

    uid: str
    domain: str
    system: str
    query: str
    check: Check
    user_context: str = ""
    bot_instructions: str = ""
    world: dict[str, Any] = field(default_factory=dict)
    servers: tuple[ServerSpec, ...] = ()
    server_places: dict[str, str] = field(default_factory=dict)
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

    def filled(self, init_result: dict[str, Any]) -> Task:
        """This task with ``{init[SERVER][KEY]}`` filled in query, user_context and the test's own bot instructions.

        The agent's and the scenario's instructions stay as written: they may hold braces of their own.

        Raises:
            SystemFault: kind ``init``; the servers returned no such value.
        """
        if not self.format_query:
            return self
        own = self._fill(self.bot_instructions, init_result)
        return replace(
            self,
            query=self._fill(self.query, init_result),
            user_context=self._fill(self.user_context, init_result),
            bot_instructions=own,
            system=self.system.removesuffix(self.bot_instructions) + own,
        )

    def _fill(self, text: str, init_result: dict[str, Any]) -> str:
        try:
            return text.format(init=init_result)
        except (KeyError, IndexError, AttributeError, ValueError, TypeError) as error:
            raise SystemFault(
                "init",
                f"{self.uid}: cannot fill {text[:80]!r}: {type(error).__name__} {error}; "
                f"servers returned {', '.join(sorted(init_result)) or 'nothing'}",
            ) from error
