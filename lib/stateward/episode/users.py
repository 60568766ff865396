"""The simulated user: a model that knows the task's user context, or a script named in the configuration."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

from stateward.config import EndpointConfig
from stateward.errors import SystemFault, UserError
from stateward.outcome import Usage
from stateward.policy.turn import ChatModel

DONE = "<DONE>"


def is_done(text: str) -> bool:
    """Whether a text ends with the mark that nothing is left to say; the mark elsewhere is only talked about."""
    return text.rstrip().endswith(DONE)


@dataclass(frozen=True, kw_only=True)
class UserReply:
    """The user's next message; `done` ends the conversation after it."""

    text: str
    done: bool = False
    usage: Usage = field(default_factory=Usage)


class User(Protocol):
    """Answers the agent from `user_context`.

    Raises `SystemFault("user", …)` when it cannot: a user that is down is never a silent or an empty answer.
    """

    async def reply(self, messages: list[dict[str, Any]], user_context: str, seed: int) -> UserReply: ...


_INSTRUCTIONS = f"""\
You play a customer who is talking to a support agent. Write the customer's next message and nothing else.

What the customer knows and wants:
{{context}}

Rules:
- Use only facts from above or from the conversation. Asked for something else, say that you do not know.
- Answer what the agent asks, in one or two sentences of plain text. Volunteer nothing that was not asked.
- If the agent proposes something that fits what the customer wants, agree; if it does not fit, say so.
- When everything is settled and the agent asks nothing more, write {DONE} alone.
"""


@dataclass(frozen=True, kw_only=True)
class ModelUser:
    """A chat model that plays the user. It sees the words of both sides, never tool calls or results."""

    model: ChatModel
    max_tokens: int = 1_024

    async def reply(self, messages: list[dict[str, Any]], user_context: str, seed: int) -> UserReply:
        system = _INSTRUCTIONS.format(context=user_context.strip() or "(nothing beyond the first message)")
        # Roles are exchanged: the agent is what the user's model answers.
        turns = [
            {"role": "user" if m["role"] == "assistant" else "assistant", "content": m["content"]}
            for m in messages
            if m["role"] in ("assistant", "user") and m.get("content")
        ]
        opening = [{"role": "system", "content": system}, {"role": "user", "content": "How can I help you?"}]
        try:
            sample = await self.model.chat(opening + turns, max_tokens=self.max_tokens, seed=seed)
        except SystemFault as fault:
            raise SystemFault("user", fault.cause) from fault
        if sample.finish == "length":
            cut = f"the simulated user's answer was cut at {self.max_tokens} tokens: raise episode.user.max_tokens"
            raise SystemFault("user", cut)
        text = sample.turn.text.strip() if sample.turn else ""
        if not text:
            raise SystemFault("user", "the simulated user's model gave an empty answer")
        return UserReply(text=text.removesuffix(DONE).strip() or "Thank you.", done=is_done(text), usage=sample.usage)


def scripted_user(config: EndpointConfig) -> User:
    """The user named by ``kind: scripted``, whose `model` is ``module:Class``."""
    module, _, name = config.model.partition(":")
    try:
        return cast(User, getattr(importlib.import_module(module), name)())
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        raise UserError(
            f"episode.user.model={config.model!r} is not a scripted user",
            str(error) or "the name is empty",
            "write module:Class, for instance stateward.practice.user:ScriptedUser",
        ) from error
