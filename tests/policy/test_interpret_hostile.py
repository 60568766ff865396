"""Whatever a policy writes is a turn; no text makes the interpreter fail.

An episode that ends by a fault of ours is void and not counted: a policy that could cause one would be rewarded.
"""

from __future__ import annotations

import json
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stateward.policy import Interpreter, Turn

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # importing vLLM takes seconds, minutes on a busy machine

PARSERS = [("qwen3_xml", "qwen3"), ("qwen3_xml", None), ("hermes", "qwen3"), ("hermes", None)]
TREE = {"type": "object", "properties": {"kids": {"type": "array", "items": {"$ref": "#/$defs/Tree"}}}}
PROPERTIES: dict[str, Any] = {
    "id": {"type": "string"},
    "count": {"type": "integer"},
    "items": {"type": "array", "items": {"type": "integer"}},
    "tree": {"$ref": "#/$defs/Tree"},
    "version": {"const": 2},
    "any": {},
}
_made: dict[tuple[str, str | None], Interpreter] = {}


@pytest.fixture(scope="module")
def tools(qwen: ModuleType) -> list[dict[str, Any]]:
    return [qwen.tool("act", PROPERTIES, **{"$defs": {"Tree": TREE}}), qwen.tool("look", {})]


def read_ids(qwen: ModuleType, tools: Any, ids: list[int], parser: str, reasoning: str | None) -> Turn:
    if (parser, reasoning) not in _made:
        _made[parser, reasoning] = Interpreter(qwen.tokenizer("qwen35"), parser, reasoning)
    turn = _made[parser, reasoning].interpret(ids, tools)
    # What the loop, the tools and the record rely on.
    assert json.loads(json.dumps([c.arguments for c in turn.calls], allow_nan=False)) == [
        c.arguments for c in turn.calls
    ]
    json.dumps([turn.text, turn.reasoning, [c.error for c in turn.calls]], ensure_ascii=False).encode()
    errors = sum(bool(call.error) for call in turn.calls)
    assert errors == turn.problems.get("bad_arguments", 0) + turn.problems.get("unknown_tool", 0)
    assert len({call.id for call in turn.calls}) == len(turn.calls)
    return turn


def read(qwen: ModuleType, tools: Any, text: str, parser: str = "qwen3_xml", reasoning: str | None = "qwen3") -> Turn:
    tokenizer = qwen.tokenizer("qwen35")
    before = "x\n</think>\n\n" if reasoning else ""
    return read_ids(qwen, tools, [*tokenizer.encode(before + text), tokenizer.eos_token_id], parser, reasoning)


def xml(**arguments: str) -> str:
    body = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in arguments.items())
    return f"<tool_call>\n<function=act>\n{body}</function>\n</tool_call>"


def call_json(arguments: str) -> str:
    return f'<tool_call>\n{{"name": "act", "arguments": {arguments}}}\n</tool_call>'


pieces = st.one_of(
    st.text(max_size=8),
    st.sampled_from(
        [
            *(
                "<think>",
                "</think>",
                "<tool_call>",
                "</tool_call>",
                "<tool_response>",
                "<|im_start|>",
                "<function=act>",
            ),
            *(
                "<function=",
                "</function>",
                "<parameter=id>",
                "<parameter=count>",
                "<parameter=tree>",
                "<parameter=",
                ">",
            ),
            *("</parameter>", "\n", " ", "[" * 1200, "]" * 1200, "9" * 4400, "nan", "-Infinity", "null", "é", "🙂"),
            *('{"name": "act", "arguments": ', '{"name": 1', '"id"', ": ", "{", "}", '"', ",", '"\\ud800"', "\\"),
        ]
    ),
)


@settings(max_examples=400, deadline=None)
@given(st.lists(pieces, max_size=25), st.sampled_from(PARSERS), st.booleans())
def test_any_text_is_a_turn(qwen: ModuleType, tools: Any, texts: list[str], parsers: Any, stop: bool) -> None:
    tokenizer = qwen.tokenizer("qwen35")
    ids = tokenizer.encode("".join(texts)) + [tokenizer.eos_token_id] * stop
    read_ids(qwen, tools, ids, *parsers)


@settings(max_examples=200, deadline=None)
@given(st.data(), st.sampled_from(PARSERS))
def test_any_tokens_are_a_turn(qwen: ModuleType, tools: Any, data: st.DataObject, parsers: Any) -> None:
    """Halves of characters and tokens in orders that no tokenizer makes."""
    ids = data.draw(st.lists(st.integers(0, len(qwen.tokenizer("qwen35")) - 1), max_size=60))
    read_ids(qwen, tools, ids, *parsers)


@pytest.mark.parametrize(
    ("text", "parser", "said"),
    [
        (xml(items="[" * 3_000), "qwen3_xml", "a value in it is nested too deeply"),
        (xml(items="[" * 200 + "]" * 200), "qwen3_xml", "nested deeper than 64 levels"),
        (xml(tree='{"kids":[' * 100 + "]}" * 100), "qwen3_xml", "nested deeper than 64 levels"),
        (xml(count="9" * 5_000), "qwen3_xml", "argument 'count' must be integer"),
        (xml(tree='{"a": "\\ud800"}'), "qwen3_xml", "surrogates not allowed"),
        (call_json('{"items": ' + "[" * 3_000 + "}"), "hermes", "not valid JSON"),
        (call_json('{"items": ' + "[" * 200 + "]" * 200 + "}"), "hermes", "nested deeper than 64 levels"),
        (call_json(f'{{"items": "{"[" * 3_000}"}}'), "hermes", "argument 'items' must be array"),
        (call_json('{"count": ' + "9" * 5_000 + "}"), "hermes", "not valid JSON"),
        (call_json('{"id": "\\udc00"}'), "hermes", "surrogates not allowed"),
    ],
)
def test_values_that_no_reader_takes_are_errors(
    qwen: ModuleType, tools: Any, text: str, parser: str, said: str
) -> None:
    (call,) = read(qwen, tools, text, parser).calls
    assert said in call.error


def test_nothing_but_reasoning_is_kept_of_a_turn_that_no_parser_can_read(qwen: ModuleType, tools: Any) -> None:
    turn = read(qwen, tools, "Ok. <function=act>\n<parameter=items>\n" + "[" * 3_000 + "\n</parameter>\n</function>")
    assert (turn.reasoning, turn.text) == ("x\n", "")
    assert "nested too deeply" in turn.calls[0].error
    assert turn.calls[0].name == "act"


def test_a_parameter_that_is_never_opened_is_an_error(qwen: ModuleType, tools: Any) -> None:
    for tail in ("<parameter=id", "<parameter=id\n5\n</parameter>\n</function>\n</tool_call>"):
        (call,) = read(qwen, tools, "<tool_call>\n<function=act>\n" + tail).calls
        assert "has no </parameter>" in call.error


def test_what_the_parsers_do_in_silence(qwen: ModuleType, tools: Any) -> None:
    """A server does the same; docs/engines.md lists it. A change of these would be a change of vLLM's."""
    for text, value in (
        ("<tool_call>\n<function=act>\n<parameter=id>\n1\n<parameter=count>\n5\n</parameter>\n</function>", "1"),
        ("<tool_call>\n<function=act>\n<parameter=id>\n1\n</parameter>", "1"),
    ):
        (call,) = read(qwen, tools, text).calls
        assert (call.arguments["id"], call.error) == (value, "")
    (call,) = read(qwen, tools, call_json('{"id": "1", "id": "2"}'), "hermes").calls
    assert (call.arguments, call.error) == ({"id": "2"}, "")


@pytest.mark.parametrize("mark", ["<b>x</b> ", "<parameter=a", "<parameter=id>\n1\n</parameter>\n"])
def test_arguments_are_converted_a_fixed_number_of_times(
    qwen: ModuleType, tools: Any, monkeypatch: pytest.MonkeyPatch, mark: str
) -> None:
    """Once for each mark, as when streaming, makes a value of 800 tags hold up the whole process for seconds."""
    from vllm.parser.engine.parser_engine import ParserEngine

    made: list[int] = []
    original = ParserEngine._fix_arg_types

    def counted(self: Any, args_json: str, func_name: str) -> str:
        made.append(len(args_json))
        return original(self, args_json, func_name)

    monkeypatch.setattr(ParserEngine, "_fix_arg_types", counted)
    (call,) = read(
        qwen, tools, f"<tool_call>\n<function=act>\n<parameter=id>\n{mark * 40}</parameter>\n</function>"
    ).calls
    assert call.name == "act"
    assert 1 <= len(made) <= 3
