"""What of a tool's result the policy reads, and what of a server's tools it never sees."""

from __future__ import annotations

from typing import Any

import pytest

from stateward.errors import UserError
from stateward.sandbox.inside.session import hidden_parts, result_text
from stateward.sandbox.reserved import require
from stateward.sandbox.toolset import arrange

ROW = {"held": [{"thing": "Tasse ☕", "number": 3}]}


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ({"content": [], "structuredContent": ROW}, '{"held": [{"thing": "Tasse ☕", "number": 3}]}'),
        ({"content": [{"type": "text", "text": ""}], "structuredContent": {"result": [1]}}, "[1]"),
        ({"content": [], "structuredContent": {"result": []}}, "[]"),
        ({"content": [], "structuredContent": {"result": False}}, "false"),
        ({"content": [], "structuredContent": {"result": None}}, ""),
        ({"content": [], "structuredContent": {}}, "{}"),
        ({"content": [{"type": "text", "text": "1 row"}], "structuredContent": ROW}, "1 row"),
        ({"content": [{"type": "image", "mimeType": "image/png"}], "structuredContent": None}, "[image: image/png]"),
        ({"content": []}, ""),
    ],
)
def test_structured_content_stands_in_for_missing_text(result: dict[str, Any], text: str) -> None:
    assert result_text(result) == text


def test_parts_that_cannot_be_shown_are_counted() -> None:
    parts = [
        {"type": "text", "text": "Two pictures [image: here]:"},
        {"type": "image", "mimeType": "image/png", "data": ""},
        {"type": "resource_link", "uri": "file:///a"},
        {"type": "resource", "resource": {"text": "shown"}},
    ]
    text = result_text({"content": parts})
    assert text == "Two pictures [image: here]:\n[image: image/png]\n[resource_link: file:///a]\nshown"
    assert hidden_parts(text) == 2


def tools(*names: str) -> list[dict[str, Any]]:
    return [{"name": name, "description": "", "inputSchema": None} for name in names]


def test_a_state_that_no_tool_takes_is_refused() -> None:
    require("scenario/a.yaml:2", "shop", {}, tools("buy"))
    require("scenario/a.yaml:2", "shop", {"a": 1}, tools("__reserved__init", "buy"))
    with pytest.raises(
        UserError, match=r"scenario/a\.yaml:2 gives server 'shop' a state, and it has no __reserved__init"
    ):
        require("scenario/a.yaml:2", "shop", {"a": 1}, tools("buy"))


@pytest.mark.parametrize(
    ("slip", "meant"),
    [
        ("__reserved_init__", "__reserved__init"),
        ("_reserved_init", "__reserved__init"),
        ("__reserved__get_effects", "__reserved__geteffects"),
        ("__Reserved__TearDown", "__reserved__teardown"),
    ],
)
def test_a_misspelt_reserved_tool_is_refused_and_never_shown(slip: str, meant: str) -> None:
    with pytest.raises(UserError, match=f"'shop' has a tool '{slip}'(?s:.)*name it {meant}"):
        require("a.yaml:2", "shop", {}, tools(slip, "buy"))
    shown, _ = arrange("a.py:test", [("shop", tools(slip, "buy"))], ())
    assert [tool.name for tool in shown] == ["buy"]


@pytest.mark.parametrize("name", ["reserved_tables", "reserved_seats", "reserve", "reserved"])
def test_a_tool_about_reservations_is_a_tool_like_any_other(name: str) -> None:
    require("a.yaml:2", "restaurant", {}, tools(name))
    shown, _ = arrange("a.py:test", [("restaurant", tools(name))], ())
    assert [tool.name for tool in shown] == [name]


def test_another_reserved_tool_is_hidden_and_no_slip() -> None:
    require("a.yaml:2", "shop", {}, tools("__reserved__reset", "__reserved__dump", "buy"))
    shown, _ = arrange("a.py:test", [("shop", tools("__reserved__reset", "buy"))], ())
    assert [tool.name for tool in shown] == ["buy"]
