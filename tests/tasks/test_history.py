"""Earlier conversations from ``STEM.meta.yaml``."""

from __future__ import annotations

import pytest

from stateward.errors import UserError

META = """
test_it: {notes: free for the authors}
$history:
  "#disabled": nonsense
  orders & more:
  - {T: Text, role: user, content: "Cancel order 1.", message_id: t1}
  - {T: Text, role: assistant, content: "I look first.", metadata: {tag: think}}
  - T: ParallelToolCall
    metadata: {}
    tool_calls:
    - {T: ToolCall, name: get_order, arguments: {id: 1}, id: c1}
    - {T: ToolCall, name: broken, arguments: {}, id: c2, metadata: {error: no such tool}}
  - {T: ToolResponse, name: get_order, content: '{"status": "open"}', id: c1}
  - {T: ToolResponse, name: broken, content: error, id: c2}
  - {T: Text, role: assistant, content: "Shall I? <DONE>", message_id: t2}
  - {T: Text, role: user, content: "Yes.", message_id: t3}
  - {T: ToolCall, name: cancel, id: c3}
"""


def history(dataset, reference: str):
    dataset.write("test_case/case.meta.yaml", META)
    dataset.test(f"scenario: shop\nquery: q\nhistory: '{reference}'")
    return dataset.one().history


def test_messages_in_chat_form(dataset) -> None:
    messages = history(dataset, "orders & more:0:")
    assert messages[0] == {"role": "user", "content": "Cancel order 1."}
    assert messages[1] == {
        "role": "assistant",
        "content": "",
        "reasoning_content": "I look first.",
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "get_order", "arguments": {"id": 1}}},
            {
                "id": "c2",
                "type": "function",
                "function": {"name": "broken", "arguments": {}},
                "error": "no such tool",
            },
        ],
    }
    assert messages[2] == {
        "role": "tool",
        "tool_call_id": "c1",
        "name": "get_order",
        "content": '{"status": "open"}',
    }
    assert messages[-1]["tool_calls"][0]["function"] == {"name": "cancel", "arguments": {}}
    assert len(messages) == 7


@pytest.mark.parametrize(
    ("reference", "first", "count"),
    [
        ("orders & more:0:t2", "Cancel order 1.", 4),
        ("orders & more:t2:", "Shall I? <DONE>", 3),
        ("orders & more:t2:t3", "Shall I? <DONE>", 1),
        ("orders & more:6:", "Yes.", 2),
    ],
)
def test_ranges(dataset, reference: str, first: str, count: int) -> None:
    messages = history(dataset, reference)
    assert (messages[0]["content"], len(messages)) == (first, count)


def test_the_end_of_the_list_is_an_empty_history(dataset) -> None:
    assert history(dataset, "orders & more:8:") == ()


@pytest.mark.parametrize(
    ("reference", "parts"),
    [
        ("orders & more", ["case.py:5", "is not group:start:end"]),
        (":0:", ["case.py:5", "is not group:start:end"]),
        ("order & more:0:", ["no group 'order & more' in test_case/case.meta.yaml", "did you mean 'orders & more'"]),
        ("#disabled:0:", ["no group"]),
        ("orders & more:9:", ["has 8 messages"]),
        ("orders & more:t9:", ["no message has the message_id 't9'", "t1, t2, t3"]),
        ("orders & more:-1:", ["no message has the message_id '-1'"]),
        ("orders & more:0:t9", ["'t9'"]),
        ("orders & more:t3:t1", ["does not come after"]),
    ],
)
def test_wrong_references(dataset, reference: str, parts: list[str]) -> None:
    with pytest.raises(UserError) as caught:
        history(dataset, reference)
    for part in parts:
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("message", "parts"),
    [
        ("{T: Txet, role: user, content: a}", ["case.meta.yaml:3", "'Txet'", "did you mean 'Text'"]),
        ("{role: user, content: a}", ["case.meta.yaml:3", "T: None"]),
        ("{T: Text, rol: user, content: a}", ["case.meta.yaml:3", "'rol'", "'role'"]),
        ("{T: Text, role: bot, content: a}", ["case.meta.yaml:3", "unknown role 'bot'"]),
        ("{T: ToolCall, name: a}", ["case.meta.yaml:3", "no 'id'"]),
        ("{T: ParallelToolCall, tool_calls: [{name: a, id: b, args: {}}]}", ["case.meta.yaml:3", "'args'"]),
        ("{T: ToolCall, name: a, id: b, arguments: [1]}", ["case.meta.yaml:3", "'arguments' must be a mapping"]),
    ],
)
def test_wrong_messages(dataset, message: str, parts: list[str]) -> None:
    dataset.write("test_case/case.meta.yaml", f"$history:\n  g:\n  - {message}\n")
    dataset.test("scenario: shop\nquery: q\nhistory: 'g:0:'")
    with pytest.raises(UserError) as caught:
        dataset.one()
    for part in parts:
        assert part in str(caught.value)


def test_history_must_be_a_mapping(dataset) -> None:
    dataset.write("test_case/case.meta.yaml", "$history: [a]\n")
    dataset.test("scenario: shop\nquery: q\nhistory: 'g:0:'")
    with pytest.raises(UserError, match=r"case.meta.yaml:1: \$history must be a mapping"):
        dataset.one()
