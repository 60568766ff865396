"""Thinking in a turn: its marks, what stands between them, and how many tokens it took."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

THINK_START, THINK_END = "<think>", "</think>"

#: A thinking block with the blank lines that Qwen templates write behind it.
_BLOCK = re.compile(re.escape(THINK_START) + r"(.*?)" + re.escape(THINK_END) + r"\n*", re.DOTALL)

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


def without_thinking(text: str) -> str:
    """`text` without its thinking blocks."""
    return _BLOCK.sub("", text)


def told_apart(text: str) -> tuple[str, str]:
    """(what was thought, what was said) of a whole answer whose endpoint has no reasoning parser, both stripped.

    Some templates open the thinking in the prompt, so an end without a beginning closes it too. Thinking that never
    ends leaves nothing that was said. Marks behind the first word that was said are talked about.
    """
    if not text.lstrip().startswith(THINK_START) and THINK_END not in text:
        return "", text
    thought, end, said = text.partition(THINK_END)
    return thought.lstrip().removeprefix(THINK_START).strip(), said.strip() if end else ""


def split_thinking(turn: str) -> tuple[str, str] | None:
    """A turn that begins with a thinking block as (what was thought, stripped; the rest), otherwise None."""
    block = _BLOCK.match(turn)
    return None if block is None else (block[1].strip(), turn[block.end() :])
