"""Scripts in place of a model, for tests and demonstrations: a list of turns, or a function."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from stateward.outcome import Usage
from stateward.policy.turn import Sample, Turn

Script = Sequence[str] | Callable[[list[int], int], str]
ChatScript = Sequence[str | Turn] | Callable[[list[dict[str, Any]]], str | Turn]


class ScriptedSampler:
    """A `Sampler` that writes the texts of a script, closed with the end-of-turn token.

    Args:
        script: texts for one call each, in order; or a function of (prompt ids, seed).
        tokenizer: turns the texts into ids; a script is certain, so every log-probability is 0.0.
    """

    def __init__(self, script: Script, tokenizer: Any) -> None:
        self._next = script if callable(script) else _in_order(script)
        self._tokenizer = tokenizer

    async def sample(self, prompt_ids: list[int], *, max_tokens: int, seed: int) -> Sample:
        """The next text. Cut to `max_tokens` with finish ``length``, as an engine would. IndexError after the last."""
        text = self._next(prompt_ids, seed)
        ids = [*self._tokenizer.encode(text, add_special_tokens=False), self._tokenizer.eos_token_id]
        kept = tuple(ids[:max_tokens])
        usage = Usage(requests=1, prompt=len(prompt_ids), completion=len(kept))
        finish = "stop" if len(kept) == len(ids) else "length"
        return Sample(ids=kept, logprobs=(0.0,) * len(kept), finish=finish, usage=usage)


class ScriptedChat:
    """A `ChatModel` that answers from a script: texts or turns in order, or a function of the messages."""

    def __init__(self, script: ChatScript) -> None:
        self._next = script if callable(script) else _in_order(script)

    async def chat(
        self, messages: list[dict[str, Any]], *, tools: list[dict[str, Any]] | None = None, max_tokens: int, seed: int
    ) -> Sample:
        """The next answer. IndexError after the last."""
        answer = self._next(messages)
        turn = answer if isinstance(answer, Turn) else Turn(text=answer)
        return Sample(usage=Usage(requests=1), turn=turn)


def _in_order(script: Sequence[Any]) -> Callable[..., Any]:
    remaining: Iterator[Any] = iter(script)

    def following(*_: Any) -> Any:
        try:
            return next(remaining)
        except StopIteration:
            raise IndexError(f"the script has only {len(script)} turns") from None

    return following
