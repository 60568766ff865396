"""Does a ledger say what a full rendering of its conversation says?

It should, but for one thing: Qwen templates drop the thinking of turns before the last user message, while the ledger
keeps what was sampled. `audit` walks both texts turn by turn, counts the dropped thinking and names the first other
difference. It costs one full rendering, so it is for the end of an episode, preflight and tests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from stateward.policy.ledger import Ledger
from stateward.policy.messages import Message
from stateward.policy.render import Renderer
from stateward.policy.thinking import THINK_END, THINK_START, split_thinking

_EMPTY = f"{THINK_START}\n\n{THINK_END}\n\n"


@dataclass(frozen=True, kw_only=True)
class Audit:
    """What came of a comparison.

    Attributes:
        template_dropped_thinking: turns whose thinking a full rendering leaves out.
        difference: empty if everything else agrees, otherwise the turn and the text around the first difference.
    """

    template_dropped_thinking: int = 0
    difference: str = ""


def audit(renderer: Renderer, ledger: Ledger, messages: Sequence[Message], tools: Sequence[dict[str, Any]]) -> Audit:
    """Compare `ledger` with one rendering of the whole conversation.

    Args:
        messages: the conversation as chat messages, the policy's turns with ``reasoning_content`` and ``tool_calls``.
    """
    template = renderer.template
    open_turn = ledger.segments[-1].kind != "sample"
    # Through the tokenizer and back, since it may normalise text (Qwen's composes characters).
    full = template.decode(template.encode(template.render(template.prepare(messages), tools, generate=open_turn)))
    opening, position, dropped, pending = template.opening, 0, 0, ""
    for number, (segment, text) in enumerate(zip(ledger.segments, ledger.texts(template.tokenizer), strict=True)):
        if segment.kind == "sample":
            candidates = [(pending + text, 0), *_without_thinking(pending + text)]
            pending = ""
        else:
            last = number == len(ledger.segments) - 1
            pending = "" if last else opening
            written = text if last else text.removesuffix(opening)
            # What a tool showed to the user stands as the assistant's; Qwen3 gives it an empty block while it is last.
            candidates = [(written, 0), (written.replace(_EMPTY, ""), 0)]
        for candidate, lost in candidates:
            if full.startswith(candidate, position):
                position, dropped = position + len(candidate), dropped + lost
                break
        else:
            here = full[position : position + len(candidates[0][0]) + 40]
            return Audit(
                template_dropped_thinking=dropped,
                difference=f"segment {number} ({segment.kind}): ledger {_near(candidates[0][0], here)!r}, "
                f"full rendering {_near(here, candidates[0][0])!r}",
            )
    rest = full[position:]
    # A template writes its separator behind the last turn; the policy does not sample it.
    difference = "" if not rest.strip() else f"the full rendering goes on with {rest[:120]!r}"
    return Audit(template_dropped_thinking=dropped, difference=difference)


def _without_thinking(turn: str) -> list[tuple[str, int]]:
    """What a template may make of a turn's thinking: an empty block, or nothing; and whether thinking was lost."""
    split = split_thinking(turn)
    if split is None:
        return [(_EMPTY + turn, 0)]
    thought, rest = split
    return [(_EMPTY + rest, int(bool(thought))), (rest, int(bool(thought)))]


def _near(text: str, other: str) -> str:
    at = next((i for i, (a, b) in enumerate(zip(text, other, strict=False)) if a != b), min(len(text), len(other)))
    return text[max(0, at - 40) : at + 40]
