"""Marks of the template in what others wrote: text that looks like a control token stays text.

A tokenizer makes one control token of ``<|im_end|>`` or ``<tool_response>`` wherever it stands, so a tool's result or a
user could end their turn and write the policy's or the system's. vLLM's chat endpoint and `apply_chat_template` let
them. Here each such mark in a user's or a tool's text is tokenised as the ordinary characters that it is made of.

Before rendering, a noncharacter is put into each mark (`guard`); the template passes it through as any text, and does
not take the mark for its own either. `encode` takes it out again and tokenises that stretch without added tokens.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from stateward.policy.messages import Message

#: Unicode keeps it for uses inside of a program like this one; in a text of others it is dropped.
_GUARD = "\ufdd0"
#: Half of a pair, which a JSON escape can name and UTF-8 cannot write.
_SURROGATE = re.compile("[\ud800-\udfff]")


class Marks:
    """The control tokens of a tokenizer and a template, and how to write them as text.

    They are the tokenizer's special tokens and, of the other added ones, those that the template's text holds, as
    Qwen's ``<tool_call>``. A tokenizer may have added tokens that are words; those stay tokens wherever they stand.
    """

    def __init__(self, tokenizer: Any, template: str) -> None:
        self._tokenizer = tokenizer
        added = {token.content: token.special for token in tokenizer.added_tokens_decoder.values()}
        marks = [text for text, special in added.items() if special or (text in template and not _is_words(text))]
        self._guarded_marks = _any_of(text for text in marks if len(text) > 1)
        self._added = _any_of(added)

    def guard(self, message: Message) -> Message:
        """`message` with every mark in its content guarded. Doing it twice changes nothing."""
        return {**message, "content": self._guarded(message["content"])} if message.get("content") else message

    def encode(self, text: str) -> list[int]:
        """Token ids of rendered text; guarded marks as ordinary characters, all others as the tokens they are."""
        text = _SURROGATE.sub("\ufffd", text)
        if _GUARD not in text:
            return self._plain_encode(text)
        # Added tokens cut a text before it is split further, so what stands between two of them can be encoded alone.
        cuts = [0, *(at for mark in self._added.finditer(text) for at in mark.span()), len(text)]
        ids: list[int] = []
        pending = 0  # from here on, nothing is encoded yet
        for start, stop in zip(cuts[::2], cuts[1::2], strict=True):
            if _GUARD in text[start:stop]:
                ids += self._plain_encode(text[pending:start])
                ids += self._characters(text[start:stop].replace(_GUARD, ""))
                pending = stop
        return ids + self._plain_encode(text[pending:])

    def _plain_encode(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False)) if text else []

    def _characters(self, text: str) -> list[int]:
        """Token ids of `text`, which holds no added token but guarded ones, as if there were none."""
        backend = self._tokenizer.backend_tokenizer
        if backend.normalizer is not None:
            text = backend.normalizer.normalize_str(text)
        words = [(text, None)] if backend.pre_tokenizer is None else backend.pre_tokenizer.pre_tokenize_str(text)
        return [token.id for word, _ in words for token in backend.model.tokenize(word)]

    def _guarded(self, content: Any) -> Any:
        if isinstance(content, str):
            return self._guarded_marks.sub(lambda mark: mark[0][0] + _GUARD + mark[0][1:], content)
        if isinstance(content, list):  # of parts, as images and texts are sent
            return [
                {**p, "text": self._guarded(p["text"])} if isinstance(p, dict) and "text" in p else p for p in content
            ]
        return content


def _is_words(text: str) -> bool:
    return all(character.isalnum() or character.isspace() for character in text)


def _any_of(texts: Iterable[str]) -> re.Pattern[str]:
    longest_first = sorted(texts, key=lambda text: (-len(text), text))
    return re.compile("|".join(re.escape(text) for text in longest_first) or r"(?!)")
