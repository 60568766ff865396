"""The tokenizer loses nothing and keeps the world's words whole; the template only ever grows at its end."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import TemplateError

from stateward.policy import Renderer, Sample
from stateward.practice.orders import AMOUNTS, CUSTOMER_IDS, HOUSE_NUMBERS, ITEMS, NOTES, ORDER_IDS, STREETS
from stateward.practice.policy.demonstrations import tools
from stateward.practice.policy.tokenizer import MARKUP, SPECIAL, render

_WORDS = ["ORD-1042", "ORD-10421", "C-117", "desk", "desks", " 120", "1200", "\n", "  ", "é", "Ġ", "😀"]
_PIECES = [*SPECIAL, *MARKUP, *_WORDS]


@given(st.lists(st.sampled_from(_PIECES) | st.text(max_size=8)).map("".join))
def test_decoding_gives_the_text_back(tokenizer: Any, text: str) -> None:
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False) == text


@pytest.mark.parametrize("frame", ["{}", "order {}.", '{{"a": "{}", "b": 1}}', "<parameter=x>\n{}\n</parameter>"])
def test_the_worlds_words_are_the_same_single_token_everywhere(tokenizer: Any, frame: str) -> None:
    for word in [*ORDER_IDS, *CUSTOMER_IDS, *ITEMS, *STREETS, *NOTES, *map(str, AMOUNTS), *map(str, HOUSE_NUMBERS)]:
        (token,) = tokenizer.encode(word, add_special_tokens=False)
        assert token in tokenizer.encode(frame.format(word), add_special_tokens=False), (word, frame)


def test_special_tokens_have_qwens_parts(tokenizer: Any) -> None:
    assert tokenizer.eos_token == "<|im_end|>"
    assert tokenizer.pad_token == "<|endoftext|>"
    for token in MARKUP:
        assert len(tokenizer.encode(token, add_special_tokens=False)) == 1
        assert tokenizer.decode(tokenizer.encode(token), skip_special_tokens=True) == token


def call(name: str, **arguments: Any) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": function}]}


def test_the_template_writes_qwens_xml() -> None:
    messages = [
        {"role": "system", "content": "Rules."},
        {"role": "user", "content": "Refund ORD-1042."},
        call("refund_order", order_id="ORD-1042", amount=60),
        {"role": "tool", "content": '{"refunded": 60}'},
        {"role": "tool", "content": "second"},
        {"role": "assistant", "content": "Done. <DONE>"},
    ]
    assert render(messages, tools()[4:5]) == (
        "<|im_start|>system\nRules.\n\n<tools>\nrefund_order(order_id, amount)\n</tools><|im_end|>\n"
        "<|im_start|>user\nRefund ORD-1042.<|im_end|>\n"
        "<|im_start|>assistant\n<tool_call>\n<function=refund_order>\n"
        "<parameter=order_id>\nORD-1042\n</parameter>\n<parameter=amount>\n60\n</parameter>\n"
        "</function>\n</tool_call><|im_end|>\n"
        '<|im_start|>user\n<tool_response>\n{"refunded": 60}\n</tool_response>'
        "\n<tool_response>\nsecond\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\nDone. <DONE><|im_end|>\n"
    )


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "user", "content": "a"}, {"role": "system", "content": "late"}],
        [{"role": "narrator", "content": "a"}],
    ],
    ids=["system later", "unknown role"],
)
def test_the_template_refuses(messages: list[dict[str, Any]]) -> None:
    with pytest.raises(TemplateError):
        render(messages)


def test_every_prefix_of_a_conversation_is_a_prefix_of_its_rendering() -> None:
    turns = [
        {"role": "user", "content": "Cancel ORD-1042 <think> now."},
        call("get_order", order_id="ORD-1042"),
        {"role": "tool", "content": '{"status": "processing"}'},
        {"role": "assistant", "content": "Shall I cancel ORD-1042?"},
        {"role": "user", "content": "Yes, please."},
        call("cancel_order", order_id="ORD-1042"),
        {"role": "tool", "content": "{}"},
        {"role": "assistant", "content": "ORD-1042 is cancelled. <DONE>"},
    ]
    whole = render(turns, tools())
    for length in range(1, len(turns) + 1):
        assert whole.startswith(render(turns[:length], tools()))


def test_the_renderers_appended_ids_are_those_of_the_whole_conversation(tokenizer: Any) -> None:
    start = [{"role": "system", "content": "Rules."}, {"role": "user", "content": "Cancel ORD-1042."}]
    replies: list[list[dict[str, Any]]] = [
        [{"role": "tool", "content": '{"status": "processing"}'}],
        [{"role": "user", "content": "Yes, please."}],
        [{"role": "tool", "content": "{}"}, {"role": "tool", "content": "[]"}],
    ]
    said = [
        call("get_order", order_id="ORD-1042"),
        {"role": "assistant", "content": "Shall I cancel ORD-1042?"},
        call("cancel_order", order_id="ORD-1042"),
    ]
    renderer = Renderer(tokenizer)
    ledger = renderer.start(start, tools())
    messages = list(start)
    for turn, reply in zip(said, replies, strict=True):
        text = render([turn]).removeprefix("<|im_start|>assistant\n").removesuffix("\n")
        ids = tuple(tokenizer.encode(text, add_special_tokens=False))
        renderer.append_sample(ledger, Sample(ids=ids, logprobs=(0.0,) * len(ids)))
        renderer.append_messages(ledger, reply)
        messages += [turn, *reply]
        whole = tokenizer.apply_chat_template(messages, tools=tools(), add_generation_prompt=True, tokenize=False)
        assert ledger.ids == tokenizer.encode(whole, add_special_tokens=False)
