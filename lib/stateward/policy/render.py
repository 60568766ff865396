"""The renderer: conversation and tools to token ids, then appends only.

The first prompt is one rendering of the checkpoint's own chat template. After that nothing is rendered again:
sampled ids are kept verbatim, and each observation (tool results, user turns) is rendered behind a short fixed anchor
conversation, from which the anchor's tokens, verified each time, are cut. So a conversation's cost is linear in its
length, and what is trained on is what was sampled and read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stateward.errors import SystemFault, UserError
from stateward.policy.ledger import Ledger
from stateward.policy.messages import Message
from stateward.policy.template import Anchor, ChatTemplate
from stateward.policy.thinking import split_thinking
from stateward.policy.turn import Sample


class Renderer:
    """Renders conversations for one checkpoint. It holds no conversation, so one serves many episodes at a time.

    Args:
        tokenizer: of the checkpoint (`load_tokenizer`).
        chat_template: Jinja text in place of the tokenizer's own.
        template_kwargs: for the template on every rendering, e.g. ``{"enable_thinking": False}``.

    Raises:
        UserError: there is no template, or conversations cannot be extended under it.
    """

    def __init__(
        self, tokenizer: Any, chat_template: str | None = None, *, template_kwargs: dict[str, Any] | None = None
    ) -> None:
        self.template = ChatTemplate(tokenizer, chat_template, template_kwargs)

    @property
    def end_of_turn(self) -> int:
        """The token with which this template closes a turn."""
        return self.template.end_of_turn

    def start(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]]) -> Ledger:
        """A ledger that holds the whole prompt, ending with the generation prompt.

        Args:
            messages: chat messages; arguments of earlier tool calls may be mappings or JSON strings.
            tools: entries of a chat request's ``tools`` (`ToolSpec.to_openai`).

        Raises:
            SystemFault("render"): the template refuses the messages, or cannot be extended with these tools.
        """
        try:
            self.template.require_extendable(messages, tools)
            ids = self.template.encode(self.template.render(self.template.prepare(messages), tools))
        except UserError as error:
            raise SystemFault("render", str(error)) from error
        ledger = Ledger()
        ledger.append("prompt", ids)
        return ledger

    def append_sample(self, ledger: Ledger, sample: Sample) -> None:
        """Add one sampled turn, ids verbatim. A sample without ids (of a chat endpoint) is refused with ValueError."""
        if not sample.ids:
            raise ValueError("this sample has no token ids; a chat endpoint's turns cannot enter a ledger")
        ledger.append("sample", sample.ids, sample.logprobs)

    def append_messages(self, ledger: Ledger, messages: Sequence[Message]) -> None:
        """Add what answered the last turn (all its tool results together, or user turns), then the generation prompt.

        A sample that did not end its turn is closed first with the template's token (mask 0, counted in
        `ledger.problems` as ``turn_closed``). Thinking of earlier turns stays in the ledger; where the template would
        leave it out from now on, that is counted as ``template_dropped_thinking``.

        Raises:
            ValueError: there is nothing to add, or the ledger does not end with a sample.
            SystemFault("render"): the template refuses the messages, or the anchor's tokens changed.
        """
        if not messages:
            raise ValueError("append_messages needs at least one message")
        if ledger.segments[-1].kind != "sample":
            raise ValueError(f"the ledger ends with a {ledger.segments[-1].kind}; an observation follows a sample")
        anchor, delta = self._delta(messages)
        if anchor.drops_thinking and (dropped := self._uncounted_thoughts(ledger)):
            ledger.problems["template_dropped_thinking"] += dropped
        if ledger.ids[-1] != self.end_of_turn:
            ledger.problems["turn_closed"] += 1
            delta = [self.end_of_turn, *delta]
        ledger.append("observation", delta)

    def _delta(self, messages: Sequence[Message]) -> tuple[Anchor, list[int]]:
        kind = "tool" if messages[0]["role"] == "tool" else "user"
        anchors = self.template.anchors[kind]
        observed = [self.template.marks.guard(message) for message in messages]  # whoever speaks, it is not the policy
        try:
            text = self.template.render(self.template.prepare([*self.template.anchor(kind), *observed]))
        except UserError as error:
            raise SystemFault("render", str(error)) from error
        ids = self.template.encode(text)
        for anchor in anchors:
            if ids[: len(anchor.ids)] == anchor.ids:
                return anchor, ids[len(anchor.ids) :]
        raise SystemFault(
            "render",
            "the template rewrote the anchor in front of an observation\n"
            + self.template.difference(anchors[0].ids, ids)
            + "\n  do: use a template that renders every message the same wherever it stands",
        )

    def _uncounted_thoughts(self, ledger: Ledger) -> int:
        """Sampled turns with thinking that a full rendering drops from here on; each is counted once."""
        fresh, ledger.thoughts_counted = ledger.segments[ledger.thoughts_counted :], len(ledger.segments)
        turns = [self.template.decode(ledger.ids[s.start : s.end]) for s in fresh if s.kind == "sample"]
        split = [split_thinking(self.template.opening + turn) for turn in turns]
        return sum(1 for parts in split if parts and parts[0])
