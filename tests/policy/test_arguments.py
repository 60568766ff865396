"""Schemas: references written out, declared types, and what of a call cannot be read."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from stateward.policy.arguments import declared_types, read_arguments, typed_schema, unreadable
from stateward.policy.messages import for_template, merge_systems

ADDRESS = {"type": "object", "properties": {"zip": {"type": "integer"}}}


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        ('{"a": 1e300, "b": [null]}', ""),
        ('{"a": NaN}', "NaN is not a number of JSON"),
        ('{"a": [-Infinity]}', "-Infinity is not a number of JSON"),
        ('{"a": 1e999}', "1e999 is out of range"),
        ('{"a": ' + "[" * 100_000, "deeper than 64 levels"),
        ('{"a": ' + "[" * 70 + "]" * 70 + "}", "deeper than 64 levels"),
        ('{"a": ' + "[" * 60 + "]" * 60 + "}", ""),
        ('{"a": "\\ud83d\\ude42"}', ""),
        ('{"a": {"\\ud83d": 1}}', "surrogates not allowed"),
        ('{"a": ' + "9" * 5_000 + "}", "not valid JSON"),
        ("[1]", "must be an object"),
    ],
)
def test_what_no_record_could_keep_is_refused(raw: str, problem: str) -> None:
    value, error = read_arguments("act", raw)
    assert problem in error
    assert bool(problem) == bool(error) == (value == {})


def test_references_are_written_out() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/A"}, "b": {"anyOf": [{"$ref": "#/$defs/A"}, {"type": "null"}]}},
        "$defs": {"A": ADDRESS},
    }
    assert typed_schema(schema) == {
        "type": "object",
        "properties": {"a": ADDRESS, "b": {"anyOf": [ADDRESS, {"type": "null"}]}},
    }


def test_recursive_types_hold_themselves_and_foreign_references_stay() -> None:
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/N"}, "same": {"$ref": "#/$defs/M"}}}
    loop = {"anyOf": [{"$ref": "#/$defs/M"}, {"type": "null"}]}
    out = typed_schema({"properties": {"n": {"$ref": "#/$defs/N", "title": "n"}}, "$defs": {"N": node, "M": loop}})
    made = out["properties"]["n"]
    assert made["type"] == "object"
    assert made["properties"]["next"] is made
    assert made["properties"]["same"] == {"anyOf": [{}, {"type": "null"}]}
    foreign = {"properties": {"n": {"$ref": "https://example.org/schema.json"}}}
    assert typed_schema(foreign) == foreign


def test_types_that_refer_to_one_another_do_not_multiply() -> None:
    """Filters and page blocks of real servers: each kind may hold every other. Written out, 30 kinds would be 30!."""
    names = [f"K{number}" for number in range(30)]
    every = {name: {"$ref": f"#/$defs/{name}"} for name in names}
    defs = {name: {"type": "object", "properties": every} for name in names}
    out = typed_schema({"properties": {"k": {"anyOf": list(every.values())}}, "$defs": defs})
    assert declared_types(out["properties"]["k"]) == {"object"}
    assert out["properties"]["k"]["anyOf"][3]["properties"]["K7"] is out["properties"]["k"]["anyOf"][7]


def test_a_constant_is_told_as_an_enumeration() -> None:
    schema = {"properties": {"version": {"const": 2}, "const": {"type": "string"}}}
    typed = {"version": {"const": 2, "enum": [2]}, "const": {"type": "string"}}
    assert typed_schema(schema) == {"properties": typed}


kinds = st.sampled_from([{"type": "integer"}, {"type": "string"}, {"type": ["number", "null"]}, {"enum": [1, "a"]}])
schemas = st.recursive(
    kinds | st.sampled_from([{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/B"}]),
    lambda inner: (
        st.builds(lambda x: {"anyOf": x}, st.lists(inner, min_size=1, max_size=3))
        | st.builds(lambda x: {"type": "array", "items": x}, inner)
        | st.builds(
            lambda x: {"type": "object", "properties": x}, st.dictionaries(st.sampled_from("xy"), inner, max_size=2)
        )
    ),
    max_leaves=6,
)
values = st.recursive(
    st.none() | st.booleans() | st.integers(0, 3) | st.sampled_from(["a", "b"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("xy"), inner, max_size=2),
    max_leaves=6,
)


@given(schemas, kinds, schemas, values)
def test_written_out_schemas_accept_the_same_values(a: Any, b: Any, top: Any, value: Any) -> None:
    if "$ref" in json.dumps(a):  # A may point to itself: never written out
        a = {"type": "array", "items": b}
    schema = {"type": "object", "properties": {"p": top}, "$defs": {"A": a, "B": b}}
    instance = {"p": value}
    assert "$ref" not in json.dumps(typed_schema(schema))
    assert Draft202012Validator(schema).is_valid(instance) == Draft202012Validator(typed_schema(schema)).is_valid(
        instance
    )


@pytest.mark.parametrize(
    ("schema", "types"),
    [
        ({}, set()),
        (None, set()),
        ({"type": "integer"}, {"integer"}),
        ({"type": ["string", "null"]}, {"string", "null"}),
        (
            {"enum": [1, 2.5, "a", None, True, [1], {}]},
            {"integer", "number", "string", "null", "boolean", "array", "object"},
        ),
        ({"const": False}, {"boolean"}),
        (
            {"anyOf": [{"type": "integer"}, {"oneOf": [{"type": "array"}]}], "allOf": [{"type": "null"}]},
            {"integer", "array", "null"},
        ),
    ],
)
def test_declared_types(schema: Any, types: set[str]) -> None:
    assert declared_types(schema) == types


def test_only_text_that_no_type_can_read_is_refused() -> None:
    schema = {"properties": {"n": {"type": "integer"}, "s": {"type": "string"}, "any": {}}}
    stubborn = unreadable({"n": "x", "s": "x", "any": "x", "more": "x"}, schema, lambda text, types: text)
    assert stubborn == ["argument 'n' must be integer, got 'x'"]
    assert unreadable({"n": "5"}, schema, lambda text, types: 5) == []
    assert unreadable({"n": [1]}, schema, lambda text, types: text) == []
    assert unreadable({"n": "x"}, {}, lambda text, types: text) == []

    def deep(text: str, types: list[str]) -> Any:
        raise RecursionError

    assert unreadable({"n": "[" * 200}, schema, deep) == [f"argument 'n' must be integer, got '{'[' * 80}…'"]


def test_messages_for_templates() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    given_messages: list[dict[str, Any]] = [
        {"role": "assistant", "content": None, "reasoning": "hm", "tool_calls": [call]},
        {"role": "assistant", "content": "x", "tool_calls": None},
    ]
    before = json.dumps(given_messages)
    first, second = for_template(given_messages)
    assert first["content"] == ""
    assert first["reasoning_content"] == "hm"
    assert first["tool_calls"][0]["function"]["arguments"] == {"a": 1}
    assert "tool_calls" not in second
    assert json.dumps(given_messages) == before


def test_systems_are_merged_in_runs() -> None:
    def message(role: str, content: str) -> dict[str, Any]:
        return {"role": role, "content": content}

    merged = merge_systems(
        [message("system", "a"), message("system", ""), message("system", "b"), message("user", "c")]
    )
    assert merged == [message("system", "a\n\nb"), message("user", "c")]
    apart = [message("system", "a"), message("user", "b"), message("system", "c")]
    assert merge_systems(apart) == apart
