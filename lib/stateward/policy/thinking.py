"""Counting reasoning tokens by the ids of the thinking marks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from stateward.policy.template import THINK_END, THINK_START

_LOOK_BACK = 16  # tokens of the prompt that can hold the opening of the turn under way


@dataclass(frozen=True)
class ThinkingMarks:
    """Ids of ``<think>`` and ``</think>``; None where the vocabulary has no such token."""

    start: int | None = None
    end: int | None = None

    @classmethod
    def of(cls, tokenizer: Any) -> ThinkingMarks:
        """The marks of a tokenizer."""
        vocabulary = tokenizer.get_vocab()
        return cls(vocabulary.get(THINK_START), vocabulary.get(THINK_END))

    def count(self, prompt_ids: Sequence[int], ids: Sequence[int]) -> int:
        """Sampled tokens that are reasoning, marks excluded: up to ``</think>``, or all if thinking was never closed.

        Thinking is under way if the turn's first token opens it, or if the prompt did and left it open.
        """
        if self.end is None or not ids:
            return 0
        own = int(ids[0] == self.start)
        if self.end in ids:
            return ids.index(self.end) - own
        marks = [token for token in prompt_ids[-_LOOK_BACK:] if token in (self.start, self.end)]
        opened = own or (bool(marks) and marks[-1] == self.start)
        return len(ids) - own if opened else 0
