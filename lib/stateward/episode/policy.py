"""What writes the assistant's turns: a checkpoint by tokens (`TokenPolicy`) or a chat endpoint (`ChatPolicy`).

Both hand the loop the same `PolicySession`, so the loop does not know which of them it drives.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from stateward.outcome import Usage
from stateward.policy import Interpreter, Ledger, Renderer
from stateward.policy.turn import ChatModel, ContextFull, Sampler, Turn

Message = dict[str, Any]


class PolicySession(Protocol):
    """One conversation of a policy. `usage` and `problems` count up over its turns."""

    usage: Usage
    problems: dict[str, int]

    async def next_turn(self) -> tuple[Turn, bool]:
        """The next assistant turn, and whether it was cut off by the turn's or the context's length limit."""
        ...

    def observe(self, messages: list[Message]) -> None:
        """Append tool results or a user message."""
        ...

    def room(self) -> int:
        """Tokens that the next turn may have; 0 when the context is full."""
        ...

    def tokens(self) -> dict[str, list[Any]]:
        """The ledger as {"ids", "mask", "logprobs"} of equal length and "prompt_length" as a list of one; or {}."""
        ...


class Policy(Protocol):
    """Starts sessions. `fingerprint` identifies weights, tokenizer, template and parsers."""

    @property
    def fingerprint(self) -> str: ...

    def begin(self, messages: list[Message], tools: list[dict[str, Any]], seed: int) -> PolicySession: ...


@dataclass(frozen=True, kw_only=True)
class TokenPolicy:
    """A checkpoint driven by token ids: probing, training and evaluation differ in `sampler` alone."""

    renderer: Renderer
    interpreter: Interpreter
    sampler: Sampler
    fingerprint: str
    max_model_len: int
    max_tokens_per_turn: int

    def begin(self, messages: list[Message], tools: list[dict[str, Any]], seed: int) -> PolicySession:
        return _TokenSession(policy=self, ledger=self.renderer.start(messages, tools), tools=tools, seed=seed)


@dataclass(kw_only=True)
class _TokenSession:
    policy: TokenPolicy
    ledger: Ledger
    tools: list[dict[str, Any]]
    seed: int
    usage: Usage = field(default_factory=Usage)
    problems: dict[str, int] = field(default_factory=dict)
    turns: int = 0

    def room(self) -> int:
        return max(0, min(self.policy.max_tokens_per_turn, self.policy.max_model_len - len(self.ledger.ids)))

    async def next_turn(self) -> tuple[Turn, bool]:
        sample = await self.policy.sampler.sample(
            list(self.ledger.ids), max_tokens=self.room(), seed=_turn_seed(self.seed, self.turns)
        )
        self.turns += 1
        self.policy.renderer.append_sample(self.ledger, sample)
        self.usage.add(sample.usage)
        turn = self.policy.interpreter.interpret(list(sample.ids), self.tools)
        _count(self.problems, turn)
        return turn, sample.finish == "length"

    def observe(self, messages: list[Message]) -> None:
        self.policy.renderer.append_messages(self.ledger, messages)
        self.problems.update(self.ledger.problems)  # its counts are cumulative and under names of their own

    def tokens(self) -> dict[str, list[Any]]:
        self.ledger.check()
        return {
            "ids": list(self.ledger.ids),
            "mask": list(self.ledger.mask),
            "logprobs": list(self.ledger.logprobs),
            "prompt_length": [self.ledger.prompt_length],
        }


@dataclass(frozen=True, kw_only=True)
class ChatPolicy:
    """An API model as the policy: messages in, a message out; it has no ledger, so it cannot be trained."""

    model: ChatModel
    fingerprint: str
    max_tokens_per_turn: int

    def begin(self, messages: list[Message], tools: list[dict[str, Any]], seed: int) -> PolicySession:
        return _ChatSession(policy=self, messages=list(messages), tools=tools, seed=seed)


@dataclass(kw_only=True)
class _ChatSession:
    policy: ChatPolicy
    messages: list[Message]
    tools: list[dict[str, Any]]
    seed: int
    usage: Usage = field(default_factory=Usage)
    problems: dict[str, int] = field(default_factory=dict)
    turns: int = 0

    def room(self) -> int:
        return self.policy.max_tokens_per_turn

    async def next_turn(self) -> tuple[Turn, bool]:
        try:
            sample = await self.policy.model.chat(
                self.messages,
                tools=self.tools,
                max_tokens=self.policy.max_tokens_per_turn,
                seed=_turn_seed(self.seed, self.turns),
            )
        except ContextFull:
            if not self.turns:
                raise  # the task itself does not fit: nothing was tried that could be graded
            self.problems["context_full"] = 1
            return Turn(), True
        self.turns += 1
        self.usage.add(sample.usage)
        turn = sample.turn or Turn()
        _count(self.problems, turn)
        self.messages.append(assistant_message(turn))
        return turn, sample.finish == "length"

    def observe(self, messages: list[Message]) -> None:
        self.messages.extend(messages)

    def tokens(self) -> dict[str, list[Any]]:
        return {}


def assistant_message(turn: Turn) -> Message:
    """`turn` as a chat message; arguments stay an object, as chat templates want them."""
    message: Message = {"role": "assistant", "content": turn.text}
    if turn.reasoning:
        message["reasoning_content"] = turn.reasoning
    if turn.calls:
        message["tool_calls"] = [
            {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}} for c in turn.calls
        ]
    return message


def _turn_seed(seed: int, turn: int) -> int:
    """Every turn draws from its own stream: the same seed twice would repeat the same uniform numbers."""
    return (seed + turn) & 0x7FFFFFFF


def _count(problems: dict[str, int], turn: Turn) -> None:
    for name, number in turn.problems.items():
        problems[name] = problems.get(name, 0) + number
