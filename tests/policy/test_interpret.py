"""What the interpreter makes of a turn, on the parsers of the installed vLLM."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

from stateward.errors import UserError
from stateward.policy import Interpreter, Turn

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # importing vLLM takes seconds, minutes on a busy machine

DEFS = {"Address": {"type": "object", "properties": {"zip": {"type": "integer"}, "next": {"$ref": "#/$defs/Address"}}}}
PROPERTIES: dict[str, Any] = {
    "id": {"type": "string"},
    "maybe_text": {"type": ["string", "null"]},
    "maybe_count": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
    "count": {"type": "integer"},
    "price": {"type": "number"},
    "flag": {"type": "boolean"},
    "items": {"type": "array", "items": {"type": "integer"}},
    "extra": {"type": "object"},
    "kind": {"enum": ["a", "b"]},
    "level": {"enum": [1, 2]},
    "address": {"$ref": "#/$defs/Address"},
    "maybe_address": {"anyOf": [{"$ref": "#/$defs/Address"}, {"type": "null"}]},
    "untyped": {"description": "anything"},
}


@pytest.fixture(scope="module")
def tools(qwen: ModuleType) -> list[dict[str, Any]]:
    return [qwen.tool("act", PROPERTIES, **{"$defs": DEFS}), qwen.tool("look", {})]


_made: dict[tuple[Any, ...], Interpreter] = {}


def interpreter(qwen: ModuleType, tool_parser: str, reasoning: str | None, **kwargs: Any) -> Interpreter:
    key = (tool_parser, reasoning, *kwargs.items())
    if key not in _made:
        _made[key] = Interpreter(qwen.tokenizer("qwen35"), tool_parser, reasoning, template_kwargs=kwargs)
    return _made[key]


def read(
    qwen: ModuleType,
    tools: list[dict[str, Any]],
    text: str,
    *,
    parser: str = "qwen3_xml",
    reasoning: str | None = "qwen3",
    stop: bool = True,
    **kwargs: Any,
) -> Turn:
    tokenizer = qwen.tokenizer("qwen35")
    ids = tokenizer.encode(text) + ([tokenizer.eos_token_id] if stop else [])
    return interpreter(qwen, parser, reasoning, **kwargs).interpret(ids, tools)


def xml(name: str = "act", **arguments: str) -> str:
    body = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in arguments.items())
    return f"<tool_call>\n<function={name}>\n{body}</function>\n</tool_call>"


@pytest.mark.parametrize(
    ("argument", "text", "value"),
    [
        ("id", "17", "17"),
        ("id", "null", "null"),
        ("id", "true", "true"),
        ("id", ' {"a": 1} ', ' {"a": 1} '),
        ("id", "line one\n\n  line two", "line one\n\n  line two"),
        ("maybe_text", "null", None),
        ("maybe_text", "17", "17"),
        ("maybe_count", "null", None),
        ("maybe_count", "5", 5),
        ("count", "-3", -3),
        ("price", "3.50", 3.5),
        ("price", "7", 7),
        ("flag", "true", True),
        ("flag", "False", False),
        ("items", "[1, 2]", [1, 2]),
        ("extra", '{"a": [null, 1.5]}', {"a": [None, 1.5]}),
        ("kind", "a", "a"),
        ("level", "2", 2),
        ("address", '{"zip": 80331}', {"zip": 80331}),
        ("maybe_address", '{"zip": 80331}', {"zip": 80331}),
        ("maybe_address", "null", None),
        ("untyped", "12", "12"),
        ("undeclared", "12", "12"),
    ],
)
@pytest.mark.parametrize("parser", ["qwen3_xml", "qwen3_coder"])
def test_arguments_are_typed_by_the_schema(
    qwen: ModuleType, tools: list[dict[str, Any]], parser: str, argument: str, text: str, value: Any
) -> None:
    turn = read(qwen, tools, "x\n</think>\n\n" + xml(**{argument: text}), parser=parser)
    (call,) = turn.calls
    assert call.error == ""
    assert call.arguments == {argument: value}
    assert type(call.arguments[argument]) is type(value)
    assert turn.problems == {}


@pytest.mark.parametrize(
    ("argument", "text", "said"),
    [
        ("count", "three", "argument 'count' must be integer, got 'three'"),
        ("maybe_count", "", "argument 'maybe_count' must be integer or null, got ''"),
        ("flag", "maybe", "argument 'flag' must be boolean"),
        ("items", "[1, 2", "argument 'items' must be array, got '[1, 2'"),
        ("extra", "{'a': 1}", "argument 'extra' must be object"),
        ("address", "x" * 100, "got '" + "x" * 80 + "…'"),
    ],
)
def test_an_argument_that_cannot_be_read_is_an_error_the_model_sees(
    qwen: ModuleType, tools: list[dict[str, Any]], argument: str, text: str, said: str
) -> None:
    turn = read(qwen, tools, "x\n</think>\n\n" + xml(**{argument: text}))
    assert said in turn.calls[0].error
    assert turn.problems == {"bad_arguments": 1}


def test_reasoning_text_and_several_calls(qwen: ModuleType, tools: list[dict[str, Any]]) -> None:
    turn = read(qwen, tools, "Let me see.\n</think>\n\nOne moment.\n\n" + xml(id="a") + "\n" + xml("look"))
    assert (turn.reasoning, turn.text) == ("Let me see.\n", "One moment.")
    assert [(c.name, c.arguments, c.error) for c in turn.calls] == [("act", {"id": "a"}, ""), ("look", {}, "")]
    assert len({c.id for c in turn.calls}) == 2


def test_thinking_that_the_model_opens_itself(qwen: ModuleType, tools: list[dict[str, Any]]) -> None:
    turn = read(qwen, tools, "<think>\nhm\n</think>\n\nDone.")
    assert (turn.reasoning, turn.text, turn.problems) == ("\nhm\n", "\n\nDone.", {})


def test_thinking_switched_off(qwen: ModuleType, tools: list[dict[str, Any]]) -> None:
    turn = read(qwen, tools, "Done. " + xml(id="a"), enable_thinking=False)
    assert (turn.reasoning, turn.text, turn.problems) == ("", "Done.", {})
    assert turn.calls[0].arguments == {"id": "a"}
    turn = read(qwen, tools, "Done.", reasoning=None)
    assert (turn.reasoning, turn.text, turn.problems) == ("", "Done.", {})


@pytest.mark.parametrize("stop", [True, False])
def test_unterminated_thinking_is_not_visible(qwen: ModuleType, tools: list[dict[str, Any]], stop: bool) -> None:
    turn = read(qwen, tools, "I wonder whether", stop=stop)
    assert (turn.reasoning, turn.text, turn.calls) == ("I wonder whether", "", ())
    assert turn.problems == {"unterminated_thinking": 1, **({} if stop else {"truncated": 1})}


def test_a_call_inside_thinking_is_counted(qwen: ModuleType, tools: list[dict[str, Any]]) -> None:
    turn = read(qwen, tools, "I could " + xml(id="a") + " or not\n</think>\n\n" + xml(id="b"))
    assert turn.problems == {"call_in_thinking": 1}
    assert turn.reasoning == "I could "
    # What this vLLM does with it is told, not hidden: the first call ended the thinking.
    assert [c.arguments for c in turn.calls] == [{"id": "a"}, {"id": "b"}]


def test_a_mark_in_thinking_that_swallows_the_answer_is_told(qwen: ModuleType, tools: list[dict[str, Any]]) -> None:
    turn = read(qwen, tools, "write <tool_call> first\n</think>\n\nDone.")
    assert turn.text == ""
    assert turn.problems == {"call_in_thinking": 1, "bad_arguments": 1}
    assert "names no function" in turn.calls[0].error


def test_an_unknown_tool_names_the_known_ones(qwen: ModuleType, tools: list[dict[str, Any]]) -> None:
    turn = read(qwen, tools, "x\n</think>\n\n" + xml("atc", id="a"))
    assert turn.calls[0].error == "there is no tool 'atc'; the tools are act, look"
    assert turn.problems == {"unknown_tool": 1}


CUT = "this call of act was cut off by the length limit and was not run"


@pytest.mark.parametrize(
    ("tail", "arguments", "error"),
    [
        ("<tool_call>\n<function=act>\n<parameter=id>\n1", {}, CUT),
        ("<tool_call>\n<function=act>\n<parameter=id>\n1\n</parameter>\n", {"id": "1"}, CUT),
        ("<function=act>\n<parameter=id>\n1\n</parameter>\n", {"id": "1"}, CUT),
        ("<tool_call>\n<function=act>\n<parameter=id>\n1\n</parameter>\n</function>", {"id": "1"}, ""),
    ],
)
def test_a_call_cut_by_the_length_limit_is_not_run(
    qwen: ModuleType, tools: list[dict[str, Any]], tail: str, arguments: dict[str, Any], error: str
) -> None:
    turn = read(qwen, tools, "x\n</think>\n\n" + xml("look") + "\n" + tail, stop=False)
    assert [c.error for c in turn.calls] == ["", error]
    assert turn.calls[1].arguments == arguments
    assert turn.problems == {"truncated": 1, **({"bad_arguments": 1} if error else {})}


def test_a_mark_inside_an_argument_is_text(qwen: ModuleType, tools: list[dict[str, Any]]) -> None:
    text = "write <tool_call> and </tool_call> around it"
    turn = read(qwen, tools, "x\n</think>\n\n" + xml(id=text))
    assert [(c.arguments, c.error) for c in turn.calls] == [({"id": text}, "")]
    body = json_call('{"name": "act", "arguments": {"id": "write <tool_call> before it"}}')
    turn = read(qwen, tools, "<think>\nx\n</think>\n\n" + body, parser="hermes")
    assert [(c.arguments, c.error) for c in turn.calls] == [({"id": "write <tool_call> before it"}, "")]
    assert turn.problems == {}


def test_an_argument_without_an_end_is_an_error(qwen: ModuleType, tools: list[dict[str, Any]]) -> None:
    turn = read(qwen, tools, "x\n</think>\n\n<tool_call>\n<function=act>\n<parameter=id>\n1\n</function>\n</tool_call>")
    assert turn.calls[0].error == "act: argument 'id' has no </parameter>"


def test_calls_that_the_parser_drops_are_told(qwen: ModuleType, tools: list[dict[str, Any]]) -> None:
    turn = read(qwen, tools, "x\n</think>\n\n<tool_call>\nnothing\n</tool_call>" + xml("look"))
    assert [(c.name, bool(c.error)) for c in turn.calls] == [("look", False), ("", True)]
    turn = read(qwen, tools, 'x\n</think>\n\n<tool_call>\n{"name": "look", "arguments": {}}\n</tool_call>')
    assert turn.calls[0].name == "look"
    assert "not written as this model's calls are" in turn.calls[0].error


ACT = xml("act", id="7")
BEGUN = "<tool_call>\n<function=act>\n"
STOP = '<tool_call>\n{"name": "look", "arguments": {}}\n</tool_call>\n'
STRANGE = "this call was not run: it is not written as this model's calls are: "


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (STOP + ACT, {"act": "", "look": STRANGE + '{"name": "look"'}),
        (ACT + STOP, {"act": "", "look": STRANGE + '{"name": "look"'}),
        (BEGUN + '<parameter name="id">\n7\n</parameter>\n</function>\n</tool_call>', {"act": "stands outside of its"}),
        (BEGUN + "id: 7\n</function>\n</tool_call>", {"act": "act: 'id: 7' stands outside of its parameters"}),
        (BEGUN + xml("look"), {"act": "no </function>", "look": "call before it has no </function>"}),
        (xml("act", id="a</parameter>b"), {"act": "act: 'b"}),
        (xml("act", id="a</think>b"), {"act": "a value holds </think>"}),
        (ACT.replace("</function>", "<parameter=id>\n8\n</parameter>\n</function>"), {"act": "'id' is given twice"}),
        (xml("act", id="<b>7</b>"), {"act": ""}),
    ],
)
def test_no_part_of_a_call_is_lost_in_silence(
    qwen: ModuleType, tools: list[dict[str, Any]], text: str, told: dict[str, str]
) -> None:
    turn = read(qwen, tools, "x\n</think>\n\n" + text)
    assert {call.name for call in turn.calls} == set(told)
    for call in turn.calls:
        assert told[call.name] in call.error
        assert bool(told[call.name]) == bool(call.error)
    assert turn.problems.get("bad_arguments", 0) == sum(map(bool, told.values()))


def json_call(body: str) -> str:
    return f"<tool_call>\n{body}\n</tool_call>"


LOOK = '{"name": "look", "arguments": {}}'


@pytest.mark.parametrize(
    ("bodies", "errors"),
    [
        ([LOOK], [""]),
        (['{"name": "act", "arguments": {"id": "5", "count": 3, "maybe_text": null, "items": [1]}}'], [""]),
        (['{"name": "act", "arguments": {"count": "three"}}'], ["must be integer"]),
        (['{"name": "act", "arguments": {"count": 3'], ["not valid JSON"]),
        (['{"name": "act", "arguments": {"count": NaN}}'], ["NaN is not a number of JSON"]),
        ([LOOK, '{"name": "act", arguments: 1}'], ["another call of this turn could not be read", "not valid JSON"]),
        (['{"name": "act"}'], ["it has no arguments"]),
        (['{"name": "act", "arguments": [1]}'], ["must be an object"]),
        (["[1]"], ["not an object"]),
    ],
)
def test_json_calls(qwen: ModuleType, tools: list[dict[str, Any]], bodies: list[str], errors: list[str]) -> None:
    text = "<think>\nx\n</think>\n\nOk. " + "\n".join(json_call(body) for body in bodies)
    turn = read(qwen, tools, text, parser="hermes")
    assert len(turn.calls) == len(errors)
    for call, error in zip(turn.calls, errors, strict=True):
        assert error in call.error
        assert bool(call.error) == bool(error)
    assert turn.problems.get("bad_arguments", 0) == sum(map(bool, errors))


def test_incomplete_characters_at_the_end_are_withheld(qwen: ModuleType, tools: list[dict[str, Any]]) -> None:
    tokenizer = qwen.tokenizer("qwen35")
    whole = tokenizer.encode("ok 🙂")
    assert interpreter(qwen, "qwen3_xml", None).text(whole) == "ok 🙂"
    assert interpreter(qwen, "qwen3_xml", None).text(whole[:-1]) == "ok "


def test_without_tools_nothing_is_called(qwen: ModuleType) -> None:
    turn = read(qwen, [], "x\n</think>\n\n" + xml("look"))
    assert "there are no tools" in turn.calls[0].error


@pytest.mark.parametrize(
    ("tool_parser", "reasoning", "said"),
    [("qwen3_xm", "qwen3", "did you mean 'qwen3_xml'"), ("hermes", "qwen", "policy.reasoning_parser='qwen'")],
)
def test_wrong_parser_names_are_refused(qwen: ModuleType, tool_parser: str, reasoning: str, said: str) -> None:
    with pytest.raises(UserError) as caught:
        Interpreter(qwen.tokenizer("qwen35"), tool_parser, reasoning)
    assert said in str(caught.value)
