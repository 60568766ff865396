from __future__ import annotations

from typing import Any

import pytest

from stateward.errors import UserError
from stateward.sandbox.toolset import arrange, described, plain_schema
from stateward.tasks.task import ToolPolicy


def tool(name: str, description: str = "", **properties: Any) -> dict[str, Any]:
    return {"name": name, "description": description, "inputSchema": {"type": "object", "properties": properties}}


SHOP = [tool("__reserved__init", config={}), tool("find", "Find.", id={"type": "integer"}), tool("buy", "Buy.")]
DESK = [tool("find", "Find at the desk.", query={"type": "string"}), tool("close")]


def test_all_tools_but_the_reserved_ones_and_the_later_server_wins() -> None:
    specs, owner = arrange("t", [("shop", SHOP), ("desk", DESK)], ())
    assert [(s.name, s.description) for s in specs] == [("find", "Find at the desk."), ("buy", "Buy."), ("close", "")]
    assert owner == {"find": 1, "buy": 0, "close": 1}


def test_policies_filter_order_and_describe() -> None:
    policies = (
        ToolPolicy(name="close"),
        ToolPolicy(
            name="find", override_description="Look up.", override_arg_description={"query": "What to look for"}
        ),
    )
    specs, owner = arrange("t", [("shop", SHOP), ("desk", DESK)], policies)
    assert [s.name for s in specs] == ["close", "find"]
    assert specs[1].description == "Look up."
    assert specs[1].input_schema["properties"]["query"] == {"type": "string", "description": "What to look for"}
    assert "description" not in DESK[0]["inputSchema"]["properties"]["query"]
    assert owner == {"close": 1, "find": 1}


def test_a_misspelt_tool_names_the_nearest() -> None:
    with pytest.raises(UserError, match="did you mean 'close'") as error:
        arrange("file.py:t", [("desk", DESK)], (ToolPolicy(name="clsoe"),))
    assert "file.py:t" in error.value.what
    assert "desk" in error.value.why


def test_a_misspelt_argument_names_the_nearest() -> None:
    with pytest.raises(UserError, match="did you mean 'query'"):
        arrange("t", [("desk", DESK)], (ToolPolicy(name="find", override_arg_description={"quary": "?"}),))


def test_a_reserved_tool_cannot_be_listed() -> None:
    with pytest.raises(UserError, match="__reserved__init"):
        arrange("t", [("shop", SHOP)], (ToolPolicy(name="__reserved__init"),))


def test_references_and_titles_are_resolved_away() -> None:
    schema = {
        "title": "Arguments",
        "type": "object",
        "properties": {
            "kind": {"$ref": "#/$defs/Kind", "description": "Which one", "title": "Kind"},
            "title": {"type": "string", "title": "Title"},
            "many": {"type": "array", "items": {"$ref": "#/$defs/Item"}},
        },
        "$defs": {
            "Kind": {"enum": ["a", "b"], "type": "string", "description": "general"},
            "Item": {"type": "object", "properties": {"kind": {"$ref": "#/$defs/Kind"}}},
        },
    }
    assert plain_schema(schema) == {
        "type": "object",
        "properties": {
            "kind": {"enum": ["a", "b"], "type": "string", "description": "Which one"},
            "title": {"type": "string"},
            "many": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {"kind": {"enum": ["a", "b"], "type": "string", "description": "general"}},
                },
            },
        },
    }


def test_a_circular_reference_keeps_its_definitions() -> None:
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}}
    schema = {"type": "object", "properties": {"head": {"$ref": "#/$defs/Node"}}, "$defs": {"Node": node}}
    plain = plain_schema(schema)
    assert plain["$defs"]["Node"]["properties"]["next"] == {"$ref": "#/$defs/Node"}
    assert plain["properties"]["head"]["properties"]["next"] == {"$ref": "#/$defs/Node"}


def test_a_description_made_ahead_is_used_and_stays_as_it_is() -> None:
    raw = [tool("find", id={"$ref": "#/$defs/Id", "title": "Id"})]
    raw[0]["inputSchema"]["$defs"] = {"Id": {"type": "integer"}}
    made = described(raw)
    policy = ToolPolicy(name="find", override_arg_description={"id": "Which"})
    (plain,), (overridden,) = (arrange("t", [("shop", made)], policies)[0] for policies in ((), (policy,)))
    assert plain is made[0]["spec"]
    assert plain.input_schema["properties"] == {"id": {"type": "integer"}}
    assert overridden.input_schema["properties"] == {"id": {"type": "integer", "description": "Which"}}
    assert arrange("t", [("shop", raw)], ()) == arrange("t", [("shop", made)], ())
