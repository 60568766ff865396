"""One checkpoint's chat template: rendering, how it ends a turn, and whether a conversation can be extended under it.

A reinforcement-learning transcript must grow at its end only. Templates do not promise that: some drop the thinking of
earlier turns once the user speaks again, some move tools or the system text to the last user message, some refuse a
second system message. `ChatTemplate` finds out by rendering short probe conversations, once, and says what it found.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from stateward.errors import UserError
from stateward.outcome import fingerprint
from stateward.policy.marks import Marks
from stateward.policy.messages import Message, for_template, merge_systems
from stateward.policy.thinking import THINK_START, without_thinking

#: An assistant's text in probe conversations; letters and digits only, so that no template trims or escapes it.
_SENTINEL, _THOUGHT = "anchor7f3a", "thought7f3a"
_CALL = {"id": "call_anchor", "type": "function", "function": {"name": "anchor", "arguments": {"key": "value"}}}
_USER: Message = {"role": "user", "content": "question7f3a"}
_SAID: Message = {"role": "assistant", "content": _SENTINEL}
_CALLED: Message = {"role": "assistant", "content": _SENTINEL, "tool_calls": [_CALL]}
_RESULT: Message = {"role": "tool", "tool_call_id": "call_anchor", "name": "anchor", "content": "result7f3a"}
_MORE: Message = {"role": "user", "content": "more7f3a"}
#: A user message that templates take for tool results, not for a question.
_WRAPPED: Message = {"role": "user", "content": "<tool_response>\nmore7f3a\n</tool_response>"}
_SYSTEM: Message = {"role": "system", "content": "system7f3a"}


@dataclass(frozen=True)
class Anchor:
    """One way in which the template renders the anchor conversation in front of an observation.

    `drops_thinking` says that with this observation the template leaves out the thinking of the turns before it.
    """

    ids: list[int]
    drops_thinking: bool


class ChatTemplate:
    """Renders conversations to text and token ids, and holds what was learnt of the template.

    Args:
        tokenizer: a Hugging Face fast tokenizer.
        chat_template: Jinja text; the tokenizer's own if None.
        kwargs: given to the template on every rendering, e.g. ``{"enable_thinking": False}``.

    Raises:
        UserError: the tokenizer has no template, the template does not render a plain conversation, does not end
            assistant turns with a special token, or cannot be extended.
    """

    def __init__(self, tokenizer: Any, chat_template: str | None = None, kwargs: dict[str, Any] | None = None) -> None:
        self.tokenizer = tokenizer
        self.text = chat_template or getattr(tokenizer, "chat_template", None)
        if not isinstance(self.text, str):
            raise UserError(
                "the tokenizer has no chat template",
                "conversations are rendered with the checkpoint's own template and nothing else",
                "put chat_template.jinja beside the tokenizer, or give chat_template",
            )
        self.kwargs = dict(kwargs or {})
        self.marks = Marks(tokenizer, self.text)
        self._checked: set[str] = set()
        self.end_of_turn, self.end_of_turn_text = self._find_end_of_turn()
        self.generation_prompt = self._find_generation_prompt()
        self.merges_systems = not self._takes_two_systems()
        self.shows_thinking = self._shows_thinking()
        self.anchors = {kind: self._find_anchors(kind) for kind in ("user", "tool")}
        self.require_extendable([], [])

    def render(
        self, messages: Sequence[Message], tools: Sequence[dict[str, Any]] = (), *, generate: bool = True
    ) -> str:
        """The conversation as text. Raises UserError with the template's own words if it refuses."""
        from jinja2 import TemplateError

        try:
            return str(
                self.tokenizer.apply_chat_template(
                    for_template(messages),
                    tools=list(tools) or None,
                    chat_template=self.text,
                    add_generation_prompt=generate,
                    tokenize=False,
                    **self.kwargs,
                )
            )
        except (TemplateError, TypeError, ValueError) as error:
            roles = " ".join(str(m.get("role")) for m in messages)
            raise UserError(
                f"the chat template refused a conversation of roles [{roles}]: {error}",
                "the template of this checkpoint does not allow that order of messages, or a field's type",
                "change the messages, or give the checkpoint a template that allows them",
            ) from error

    def encode(self, text: str) -> list[int]:
        """Token ids of rendered text; nothing is added and nothing is cut. Guarded marks become ordinary characters."""
        return self.marks.encode(text)

    def decode(self, ids: Sequence[int]) -> str:
        """Text of token ids, special tokens included."""
        return str(self.tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False))

    def prepare(self, messages: Sequence[Message]) -> list[Message]:
        """`messages` with marks in users' and tools' texts guarded, and consecutive systems merged on demand."""
        out = [self.marks.guard(m) if m["role"] in ("user", "tool") else m for m in messages]
        return merge_systems(out) if self.merges_systems else out

    def anchor(self, kind: str) -> list[Message]:
        """The fixed conversation behind which an observation is rendered; `kind` is ``tool`` or ``user``."""
        return [_USER, {**(_CALLED if kind == "tool" else _SAID), "reasoning_content": _THOUGHT}]

    @property
    def opening(self) -> str:
        """What the generation prompt opens behind the header of the turn: thinking, left open or closed; or nothing."""
        at = self.generation_prompt.find(THINK_START)
        return "" if at < 0 else self.generation_prompt[at:]

    def require_extendable(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]]) -> None:
        """Refuse a template under which a conversation like this one changes its past, checked once per set of tools.

        Raises:
            UserError: with the first token that differs, the text around it, and what to do.
        """
        has_system = any(m.get("role") == "system" for m in messages)
        key = fingerprint([has_system, list(tools)])
        if key in self._checked:
            return
        history: list[Message] = [_SYSTEM, _USER] if has_system else [_USER]
        steps: list[Message] = [
            _CALLED,
            _RESULT,
            _CALLED,
            _RESULT,
            _SAID,
            {"role": "user", "content": "more7f3a"},
            _SAID,
        ]
        before = self.render(history, tools, generate=False)
        for step in steps:
            history = [*history, step]
            after = self.render(history, tools, generate=False)
            self._require_prefix(before, after, f"after a {step['role']} message was added")
            before = after
        if tools:
            for kind in ("user", "tool"):
                self._require_same_delta(kind, tools)
        self._checked.add(key)

    def _require_prefix(self, before: str, after: str, when: str) -> None:
        old, new = without_thinking(before), without_thinking(after)
        if not new.startswith(old):
            raise UserError(
                f"this chat template cannot be extended: {when}, the earlier part of the conversation changed\n"
                + self.difference(self.encode(old), self.encode(new)),
                "what the policy sampled and read must stay as it was, or it is trained on a text that it never saw",
                "use a template that renders every message the same wherever it stands (tools and system text first, "
                "nothing moved to the last message)",
            )

    def _require_same_delta(self, kind: str, tools: Sequence[dict[str, Any]]) -> None:
        conversation = [*self.anchor(kind), _RESULT if kind == "tool" else _MORE]
        plain = self.render(conversation).rpartition(_SENTINEL)[2]
        tooled = self.render(conversation, tools).rpartition(_SENTINEL)[2]
        if plain != tooled:
            raise UserError(
                f"this chat template cannot be extended: it renders a {kind} message differently when there are tools\n"
                + self.difference(self.encode(plain), self.encode(tooled)),
                "observations are rendered behind a fixed anchor, which has no tools",
                "use a template that writes the tools once, at the start",
            )

    def difference(self, expected: Sequence[int], got: Sequence[int], *, around: int = 12) -> str:
        """The first token at which two sequences differ, and the text around it in both."""
        at = first_difference(expected, got)
        lines = [f"  first different token: index {at}"]
        for name, ids in (("expected", expected), ("got", got)):
            token = f"{ids[at]} {self.decode([ids[at]])!r}" if at < len(ids) else "the end"
            lines.append(f"  {name:8} {token} in {self.decode(ids[max(0, at - around) : at + around])!r}")
        return "\n".join(lines)

    def _find_end_of_turn(self) -> tuple[int, str]:
        tail = self.render([_USER, _SAID], generate=False).rpartition(_SENTINEL)[2]
        special = set(self.tokenizer.all_special_ids) | set(self.tokenizer.added_tokens_decoder)
        for token in self.encode(tail):
            if token in special:
                return token, self.decode([token])
        raise UserError(
            f"the chat template ends an assistant's turn with {tail!r}, which holds no special token",
            "without one, the end of a turn cannot be told from its text",
            "use the checkpoint's own template and tokenizer together",
        )

    def _find_generation_prompt(self) -> str:
        closed = self.render([_USER], generate=False)
        opened = self.render([_USER], generate=True)
        if not opened.startswith(closed) or opened == closed:
            raise UserError(
                "the chat template writes no generation prompt behind the conversation",
                "the policy would have to sample the header of its own turn",
                "use a template that honours add_generation_prompt",
            )
        return opened[len(closed) :]

    def _takes_two_systems(self) -> bool:
        second = {"role": "system", "content": "second7f3a"}
        try:
            text = self.render([_SYSTEM, second, _USER])
        except UserError:
            return False
        return _SYSTEM["content"] in text and second["content"] in text

    def _find_anchors(self, kind: str) -> list[Anchor]:
        """Before tool results and before a question: a template may show thinking only until a question follows."""
        found: list[Anchor] = []
        for observation in ([_RESULT], [_RESULT, _MORE]) if kind == "tool" else ([_MORE], [_WRAPPED]):
            text = self.render([*self.anchor(kind), *observation])
            end = text.index(self.end_of_turn_text, text.rindex(_SENTINEL)) + len(self.end_of_turn_text)
            anchor = Anchor(self.encode(text[:end]), drops_thinking=self.shows_thinking and _THOUGHT not in text[:end])
            if anchor not in found:
                found.append(anchor)
        return found

    def _shows_thinking(self) -> bool:
        return _THOUGHT in self.render([_USER, {**_SAID, "reasoning_content": _THOUGHT}], generate=False)


def first_difference(a: Sequence[int], b: Sequence[int]) -> int:
    """Index of the first token at which `a` and `b` differ; the shorter one's length if it is a prefix."""
    for index, (x, y) in enumerate(zip(a, b, strict=False)):
        if x != y:
            return index
    return min(len(a), len(b))
