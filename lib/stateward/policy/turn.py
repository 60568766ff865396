"""The values that pass between a sampler, the interpreter and the episode loop."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from stateward.errors import SystemFault
from stateward.outcome import Usage


@dataclass(frozen=True, kw_only=True)
class ToolCall:
    """One call as the model meant it. `error` is set when it cannot be run (the model sees the text)."""

    id: str
    name: str
    arguments: dict[str, Any] = field(default_factory=dict)
    error: str = ""


@dataclass(frozen=True, kw_only=True)
class Turn:
    """One assistant turn, interpreted.

    `problems` counts what the interpreter noticed: call_in_thinking, bad_arguments, unknown_tool,
    unterminated_thinking, truncated.
    """

    reasoning: str = ""
    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    problems: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Sample:
    """What a sampler returns for one turn.

    Shapes: `ids` and `logprobs` are [n] (n sampled tokens, stop token included); `logprobs` is empty if not known.
    `finish` is ``stop`` or ``length``. A sampler of a chat endpoint gives `turn` and no ids.
    """

    ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    finish: str = "stop"
    usage: Usage = field(default_factory=Usage)
    turn: Turn | None = None


class ContextFull(SystemFault):
    """The conversation has no room for another answer; a chat endpoint's word, where nothing here counts its tokens."""


class Sampler(Protocol):
    """Samples one assistant turn from prompt token ids.

    Raises `SystemFault("sampler", …)` after its own retries; never returns a partial answer as whole.
    """

    async def sample(self, prompt_ids: list[int], *, max_tokens: int, seed: int) -> Sample: ...


class ChatModel(Protocol):
    """A chat endpoint as the simulated user, the judge, or an API model under evaluation."""

    async def chat(
        self, messages: list[dict[str, Any]], *, tools: list[dict[str, Any]] | None = None, max_tokens: int, seed: int
    ) -> Sample: ...
