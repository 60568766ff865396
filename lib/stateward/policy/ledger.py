"""The token ledger of one conversation: what the policy read and what it sampled, never re-tokenised from text.

A ledger only grows. It is made of segments: the prompt, then samples (the policy's own tokens) and observations (what
the conversation answered, closed by the next generation prompt) in turn. Each append extends a running digest, so that
`check` can prove that no earlier token was changed.
"""

from __future__ import annotations

import hashlib
import math
from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Kind = Literal["prompt", "sample", "observation"]


@dataclass(frozen=True)
class Segment:
    """Tokens [start, end) of the ledger that came from one source."""

    kind: Kind
    start: int
    end: int


@dataclass
class Ledger:
    """Token ids, loss mask and log-probabilities of one conversation, each [T].

    Attributes:
        ids: token ids, [T].
        mask: 1 where the policy sampled the token, otherwise 0, [T].
        logprobs: natural logarithms, [T]; 0.0 where the mask is 0, NaN where the sampler gave none.
        segments: a partition of [0, T) in order; the first is the prompt.
        problems: counts of what the renderer noticed: turn_closed (a sample that did not end its turn was closed with
            the template's end-of-turn token, mask 0) and template_dropped_thinking (turns whose thinking a full
            rendering would leave out, while it stays here).
        thoughts_counted: segments that the latter count has seen.
    """

    ids: list[int] = field(default_factory=list)
    mask: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)
    problems: Counter[str] = field(default_factory=Counter)
    thoughts_counted: int = 0
    _digest: bytes = b""

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def prompt_length(self) -> int:
        """Tokens before the first sampled one could stand: the length of the first prompt."""
        return self.segments[0].end if self.segments else 0

    @property
    def response_length(self) -> int:
        """Tokens after the first prompt, sampled or observed."""
        return len(self.ids) - self.prompt_length

    def append(self, kind: Kind, ids: Sequence[int], logprobs: Sequence[float] = ()) -> None:
        """Add one segment. `logprobs` is [len(ids)] for a sample, or empty if the sampler did not give any.

        Raises:
            ValueError: lengths differ, an id is negative, or the order of segments is broken.
        """
        if (kind == "prompt") != (not self.segments):
            raise ValueError(f"a ledger starts with its only prompt; got {kind!r} after {len(self.segments)} segments")
        if kind != "sample" and logprobs:
            raise ValueError(f"log-probabilities belong to sampled tokens; got {len(logprobs)} for a {kind}")
        if logprobs and len(logprobs) != len(ids):
            raise ValueError(f"{len(ids)} token ids but {len(logprobs)} log-probabilities")
        if any(i < 0 for i in ids):
            raise ValueError(f"negative token id in a {kind}")
        start, sampled = len(self.ids), kind == "sample"
        self.ids.extend(ids)
        self.mask.extend([int(sampled)] * len(ids))
        fill = math.nan if sampled else 0.0
        self.logprobs.extend(logprobs if logprobs else [fill] * len(ids))
        segment = Segment(kind, start, len(self.ids))
        self.segments.append(segment)
        self._digest = _extend(self._digest, segment, ids)

    def check(self) -> None:
        """Prove the invariants, in time linear in T.

        Raises:
            ValueError: says which invariant does not hold, and where.
        """
        total = len(self.ids)
        if not len(self.mask) == len(self.logprobs) == total:
            raise ValueError(f"lengths differ: ids {total}, mask {len(self.mask)}, logprobs {len(self.logprobs)}")
        digest, position = b"", 0
        for number, segment in enumerate(self.segments):
            if (segment.kind == "prompt") != (number == 0):
                raise ValueError(f"segment {number} is a {segment.kind}")
            if segment.start != position or segment.end < segment.start:
                raise ValueError(
                    f"segment {number} covers [{segment.start}, {segment.end}), expected to start at {position}"
                )
            sampled = segment.kind == "sample"
            for t in range(segment.start, segment.end):
                if self.mask[t] != int(sampled):
                    raise ValueError(f"mask[{t}] is {self.mask[t]} inside a {segment.kind}")
                logprob = self.logprobs[t]
                if (not sampled and logprob != 0.0) or logprob > 1e-4:
                    raise ValueError(f"logprobs[{t}] is {logprob} inside a {segment.kind}")
            digest = _extend(digest, segment, self.ids[segment.start : segment.end])
            position = segment.end
        if position != total:
            raise ValueError(f"segments end at {position}, but there are {total} tokens")
        if digest != self._digest:
            raise ValueError("an earlier token was changed after it had been appended")

    def to_json(self) -> dict[str, list[Any]]:
        """``{"ids", "mask", "logprobs"}`` as `EpisodeRecord.tokens` keeps them; logprobs empty if any is unknown."""
        known = not any(math.isnan(value) for value in self.logprobs)
        return {"ids": list(self.ids), "mask": list(self.mask), "logprobs": list(self.logprobs) if known else []}

    def texts(self, tokenizer: Any) -> list[str]:
        """The decoded text of each segment, special tokens included."""
        return [
            str(
                tokenizer.decode(
                    self.ids[s.start : s.end], skip_special_tokens=False, clean_up_tokenization_spaces=False
                )
            )
            for s in self.segments
        ]


def _extend(digest: bytes, segment: Segment, ids: Iterable[int]) -> bytes:
    data = array("q", ids).tobytes()
    return hashlib.sha256(digest + f"{segment.kind}:{segment.start}:{segment.end}:".encode() + data).digest()
