"""Rendering by deltas says what one full rendering says, for the Qwen families and for any conversation."""

from __future__ import annotations

import time
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stateward.errors import SystemFault
from stateward.policy import Ledger, Renderer, Sample, audit

FAMILIES = {
    "qwen3": ("qwen3", {}),
    "qwen3-no-thinking": ("qwen3", {"enable_thinking": False}),
    "qwen35": ("qwen35", {}),
    "qwen35-no-thinking": ("qwen35", {"enable_thinking": False}),
    "qwen36-preserve": ("qwen35", {"preserve_thinking": True}),
    "qwen38-preserve": ("qwen38", {"reasoning_effort": "low"}),
    "qwen38-forget": ("qwen38", {"preserve_thinking": False}),
    "qwen38-no-thinking": ("qwen38", {"enable_thinking": False}),
}
_renderers: dict[str, Renderer] = {}


def renderer_of(qwen: ModuleType, family: str) -> Renderer:
    if family not in _renderers:
        name, kwargs = FAMILIES[family]
        _renderers[family] = Renderer(qwen.tokenizer(name), template_kwargs=kwargs)
    return _renderers[family]


def canonical_sample(
    renderer: Renderer, before: list[dict[str, Any]], turn: dict[str, Any], tools: list[Any]
) -> Sample:
    """The turn as the template itself would have written it behind the generation prompt."""
    template = renderer.template
    before = [message for message in before if "direct" not in message]
    opened = template.render(template.prepare(before), tools)
    closed = template.render(template.prepare([*before, turn]), tools, generate=False)
    assert closed.startswith(opened), (opened[-80:], closed[len(opened) - 80 : len(opened) + 40])
    ids = template.encode(closed[len(opened) :])
    ids = ids[: ids.index(renderer.end_of_turn) + 1] if ids.count(renderer.end_of_turn) == 1 else ids[:-1]
    return Sample(ids=tuple(ids), logprobs=(-0.5,) * len(ids))


def play(
    renderer: Renderer, start: list[Any], turns: list[tuple[dict[str, Any], list[Any]]], tools: list[Any]
) -> Ledger:
    ledger = renderer.start(start, tools)
    history = list(start)
    for turn, observed in turns:
        renderer.append_sample(ledger, canonical_sample(renderer, history, turn, tools))
        history.append(turn)
        if observed:
            renderer.append_messages(ledger, observed)
            history.extend(observed)
    ledger.check()
    return ledger


plain = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=30)
#: Words that look like markup, which a template must pass through as any other text.
marked = st.one_of(
    plain,
    st.sampled_from(
        ["</tool_call>", "<think>", "a </think> b", "<tool_response>x", "{{ x }}", "\n\n", "é", "e\u0301", "<|im_end|>"]
    ),
)
said = marked.map(lambda text: text.strip() or "ok")
shown = st.lists(said.filter(lambda text: "</think>" not in text), max_size=2)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**6), 10**6) | plain,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=5,
)
call = st.fixed_dictionaries(
    {
        "type": st.just("function"),
        "id": st.sampled_from(["c1", "c2"]),
        "function": st.fixed_dictionaries(
            {
                "name": st.sampled_from(["find_order", "cancel_order"]),
                "arguments": st.dictionaries(st.sampled_from(["order_id", "notify", "items"]), values, max_size=3),
            }
        ),
    }
)


@st.composite
def conversations(draw: st.DrawFn, thinking: bool) -> tuple[list[Any], list[tuple[dict[str, Any], list[Any]]]]:
    start: list[Any] = [{"role": "system", "content": draw(said)} for _ in range(draw(st.integers(0, 2)))]
    start.append({"role": "user", "content": "Q " + draw(said)})
    turns = []
    count = draw(st.integers(1, 5))
    for number in range(count):
        calls = draw(st.lists(call, max_size=3))
        turn: dict[str, Any] = {"role": "assistant", "content": draw(said) if draw(st.booleans()) or not calls else ""}
        turn["reasoning_content"] = draw(plain).strip() if thinking and draw(st.booleans()) else ""
        turn["reasoning_content"] = turn["reasoning_content"].replace("</think>", "")
        if calls:
            turn["tool_calls"] = calls
            observed: list[Any] = [{"role": "tool", "tool_call_id": c["id"], "content": draw(marked)} for c in calls]
            # What tools showed to the user stands behind their results, as the assistant's.
            observed += [{"role": "assistant", "content": t, "direct": True} for t in draw(shown)]
            if draw(st.booleans()):
                observed.append({"role": "user", "content": "U " + draw(said)})
        else:
            observed = [{"role": "user", "content": "U " + draw(said)}]
        turns.append((turn, observed if number < count - 1 or draw(st.booleans()) else []))
    return start, turns


def expected_drops(start: list[Any], turns: list[tuple[dict[str, Any], list[Any]]]) -> int:
    messages = start + [m for turn, observed in turns for m in (turn, *observed)]
    last = max(i for i, m in enumerate(messages) if m["role"] == "user")
    return sum(1 for m in messages[:last] if m.get("reasoning_content"))


@pytest.mark.parametrize("with_tools", [True, False], ids=["tools", "no-tools"])
@pytest.mark.parametrize("family", list(FAMILIES))
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_ledger_decodes_to_the_full_rendering(
    qwen: ModuleType, family: str, with_tools: bool, data: st.DataObject
) -> None:
    renderer = renderer_of(qwen, family)
    start, turns = data.draw(conversations(thinking="no-thinking" not in family))
    tools = (
        [qwen.tool("find_order", {"order_id": {"type": "string"}}), qwen.tool("cancel_order", {})] if with_tools else []
    )
    ledger = play(renderer, start, turns, tools)
    messages = start + [m for turn, observed in turns for m in (turn, *observed)]
    result = audit(renderer, ledger, messages, tools)
    assert result.difference == ""
    dropped = 0 if "preserve" in family else expected_drops(start, turns)
    assert result.template_dropped_thinking == dropped
    assert ledger.problems["template_dropped_thinking"] == dropped  # counted as it went, without a full rendering


@pytest.mark.parametrize("family", list(FAMILIES))
def test_audit_sees_a_changed_word(qwen: ModuleType, family: str) -> None:
    renderer = renderer_of(qwen, family)
    start = [{"role": "user", "content": "Where is order 17?"}]
    turns: list[Any] = [({"role": "assistant", "content": "It was shipped."}, [{"role": "user", "content": "When?"}])]
    ledger = play(renderer, start, turns, [])
    messages = [*start, turns[0][0], {"role": "user", "content": "Who?"}]
    assert "Who?" in audit(renderer, ledger, messages, []).difference
    messages[1] = {"role": "assistant", "content": "It was lost."}
    assert "segment 1 (sample)" in audit(renderer, ledger, messages, []).difference
    answered = play(renderer, start, [(turns[0][0], [])], [])
    assert "goes on" in audit(renderer, answered, [*start, turns[0][0], *start], []).difference


def test_sampled_ids_are_kept_verbatim(qwen: ModuleType) -> None:
    """Ids that no tokenizer would choose for their text stay what they are."""
    renderer = renderer_of(qwen, "qwen35")
    tokenizer = qwen.tokenizer("qwen35")
    odd = (*(tokenizer.encode(letter)[0] for letter in "order shipped"), tokenizer.eos_token_id)
    assert list(odd) != [*tokenizer.encode("order shipped"), tokenizer.eos_token_id]
    ledger = renderer.start([{"role": "user", "content": "hi"}], [])
    at = len(ledger)
    renderer.append_sample(ledger, Sample(ids=odd, logprobs=(-1.0,) * len(odd)))
    renderer.append_messages(ledger, [{"role": "user", "content": "more"}])
    assert tuple(ledger.ids[at : at + len(odd)]) == odd
    assert sum(ledger.mask) == len(odd)


def test_a_cut_sample_is_closed_and_counted(qwen: ModuleType) -> None:
    renderer = renderer_of(qwen, "qwen35")
    ledger = renderer.start([{"role": "user", "content": "hi"}], [])
    renderer.append_sample(ledger, Sample(ids=(40, 41), logprobs=(-1.0, -1.0), finish="length"))
    at = len(ledger)
    renderer.append_messages(ledger, [{"role": "user", "content": "more"}])
    assert ledger.ids[at] == renderer.end_of_turn
    assert ledger.mask[at] == 0
    assert ledger.problems == {"turn_closed": 1}
    ledger.check()


def test_turn_separator_stands_between_every_turn(qwen: ModuleType) -> None:
    """The line end behind a turn is not sampled; dropping it at tool boundaries is a known bug elsewhere."""
    renderer = renderer_of(qwen, "qwen35")
    ledger = renderer.start([{"role": "user", "content": "hi"}], [])
    renderer.append_sample(ledger, Sample(ids=(40, renderer.end_of_turn)))
    renderer.append_messages(ledger, [{"role": "tool", "content": "A"}, {"role": "tool", "content": "B"}])
    assert ledger.texts(qwen.tokenizer("qwen35"))[-1] == (
        "\n<|im_start|>user\n<tool_response>\nA\n</tool_response>\n<tool_response>\nB\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\n<think>\n"
    )


def test_arguments_may_come_as_json_text(qwen: ModuleType) -> None:
    renderer = renderer_of(qwen, "qwen35")

    def prompt(arguments: Any) -> list[int]:
        function = {"name": "find_order", "arguments": arguments}
        calls = [{"id": "c", "type": "function", "function": function}]
        messages = [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": None, "tool_calls": calls},
            {"role": "tool", "tool_call_id": "c", "content": "found"},
        ]
        return renderer.start(messages, []).ids

    assert prompt('{"order_id": "A-17"}') == prompt({"order_id": "A-17"})


def test_order_of_calls_is_enforced(qwen: ModuleType) -> None:
    renderer = renderer_of(qwen, "qwen35")
    ledger = renderer.start([{"role": "user", "content": "hi"}], [])
    with pytest.raises(ValueError, match="ends with a prompt"):
        renderer.append_messages(ledger, [{"role": "user", "content": "more"}])
    with pytest.raises(ValueError, match="no token ids"):
        renderer.append_sample(ledger, Sample())
    renderer.append_sample(ledger, Sample(ids=(40, renderer.end_of_turn)))
    with pytest.raises(ValueError, match="at least one message"):
        renderer.append_messages(ledger, [])


def test_system_messages_are_merged_where_the_template_demands_it(qwen: ModuleType) -> None:
    messages = [{"role": "system", "content": c} for c in ("One.", "Two.")] + [{"role": "user", "content": "hi"}]
    merged, kept = renderer_of(qwen, "qwen35"), renderer_of(qwen, "qwen3")
    assert (merged.template.merges_systems, kept.template.merges_systems) == (True, False)
    text = merged.template.decode(merged.start(messages, []).ids)
    assert text.startswith("<|im_start|>system\nOne.\n\nTwo.<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n")
    assert kept.template.decode(kept.start(messages, []).ids).count("<|im_start|>system") == 2
    late = [*messages, {"role": "assistant", "content": "a"}, {"role": "system", "content": "Three."}]
    with pytest.raises(SystemFault, match="System message must be at the beginning"):
        merged.start(late, [])


def episode(renderer: Renderer, turns: int, text: str) -> Ledger:
    ledger = renderer.start([{"role": "user", "content": text}], [])
    ids = (*renderer.template.encode(text), renderer.end_of_turn)
    for number in range(turns):
        renderer.append_sample(ledger, Sample(ids=ids))
        role = "tool" if number % 2 else "user"
        renderer.append_messages(ledger, [{"role": role, "content": text}])
    return ledger


@pytest.mark.parametrize("family", ["qwen3", "qwen35"])
def test_cost_is_linear_in_turns(qwen: ModuleType, family: str) -> None:
    renderer = renderer_of(qwen, family)
    text = "The order was shipped on Tuesday. " * 10
    episode(renderer, 4, text)

    def seconds(turns: int) -> float:
        started = time.process_time()
        episode(renderer, turns, text)
        return time.process_time() - started

    # The least of several runs, interleaved: other work on the machine only ever adds.
    pairs = [(seconds(60), seconds(120)) for _ in range(5)]
    short, long = min(p[0] for p in pairs), min(p[1] for p in pairs)
    assert long < 2.6 * short, f"60 turns {short:.3f} s, 120 turns {long:.3f} s"
