"""Demonstrations are possible conversations, right without slips, and never in a task's world."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping
from itertools import islice, pairwise
from typing import Any

import pytest

from stateward.practice.orders import OrderDesk
from stateward.practice.policy import RECIPE
from stateward.practice.policy.demonstrations import demonstrations, order_desk, tools
from stateward.practice.policy.errands import REQUESTS, Request, random_request
from stateward.practice.policy.expert import APPROVAL_ABOVE, QUESTIONS, Conversation, play
from stateward.practice.policy.tokenizer import render
from stateward.practice.policy.worlds import Excluded, random_world

FRAME = order_desk()
FAULTLESS = dict.fromkeys(RECIPE.slips, 0.0)


def calls(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [c["function"] for m in messages for c in m.get("tool_calls") or ()]


def test_the_same_seed_gives_the_same_demonstrations() -> None:
    one, two = (list(islice(demonstrations(5, RECIPE.slips, FRAME.excluded), 40)) for _ in range(2))
    assert one == two
    assert one != list(islice(demonstrations(6, RECIPE.slips, FRAME.excluded), 40))


def test_every_conversation_ends_once_and_calls_only_what_there_is() -> None:
    known = {t["function"]["name"]: set(t["function"]["parameters"]["required"]) for t in tools()}
    for messages in islice(demonstrations(1, RECIPE.slips, FRAME.excluded), 300):
        said = [m["content"] for m in messages if m["role"] == "assistant" and m["content"]]
        assert said[-1].endswith(" <DONE>")
        assert all("<DONE>" not in text and text.endswith("?") for text in said[:-1])
        assert messages[-1]["role"] == "assistant"
        for call in calls(messages):
            assert set(call["arguments"]) == known[call["name"]]
        for message in messages:
            if message["role"] == "tool":
                assert "error" not in json.loads(message["content"])


def test_what_is_left_unsaid_comes_out_when_asked() -> None:
    asked = 0
    for number in range(300):
        rng = random.Random(number)
        world = random_world(rng)
        request = random_request(rng, world)
        conversation = Conversation(OrderDesk(world), request, rng, FAULTLESS)
        play(conversation)
        for question, reply in pairwise(conversation.messages):
            if question["content"] == QUESTIONS.get(request.unsaid):
                asked += 1
                fact = re.compile(rf"\b{re.escape(request.facts[request.unsaid])}\b")
                assert not fact.search(request.query)
                assert fact.search(reply["content"])
    assert asked > 20


def forbidden(request: Request, before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Which rules the change from `before` to `after` breaks, by the order desk's written policy."""
    asked = {e.order["id"]: e for e in request.errands}
    broken = []
    for order_id, old in before["orders"].items():
        new = after["orders"][order_id]
        changed = {k for k in old if old[k] != new[k]}
        if changed and order_id not in asked:
            broken.append("unasked")
        if changed & {"status", "quantity", "address", "note"} and old["status"] != "processing":
            broken.append("status")
        if "status" in changed and request.facts["confirm"] == "no":
            broken.append("confirmation")
        if "refunded" in changed:
            paid = new["refunded"] - old["refunded"]
            whole = old["quantity"] * old["price"]
            if old["status"] != "delivered" or old["refunded"] or paid > whole:
                broken.append("refund")
            if (paid > APPROVAL_ABOVE) != (new["approval"] == "approved"):
                broken.append("approval")
    return broken


@pytest.mark.parametrize(
    "slip", [None, "skips approval", "cancels against a no", "refunds twice", "asks approval in vain"]
)
def test_the_expert_keeps_the_rules_but_for_its_slips(slip: str | None) -> None:
    slips = FAULTLESS | ({} if slip is None else {slip: 1.0})
    broken, seen = [], set()
    for number in range(400):
        rng = random.Random(number)
        world = random_world(rng)
        request = random_request(rng, world)
        desk = OrderDesk(world)
        before = desk.state()
        conversation = Conversation(desk, request, rng, slips)
        play(conversation)
        seen.add((request.name, request.unsaid))
        wrong = forbidden(request, before, desk.state())
        assert bool(wrong) <= bool(conversation.slipped)
        broken += wrong
    assert {name for name, _ in seen} == set(REQUESTS)
    assert bool(broken) == (slip is not None)


def test_worlds_of_tasks_are_recognised() -> None:
    world = random_world(random.Random(3))
    other = random_world(random.Random(4))
    excluded = Excluded([world])
    assert excluded.meets(world)
    assert not excluded.meets(other)
    order = world["orders"][0]
    assert excluded.meets({**other, "orders": [*other["orders"], {**order, "item": "tent", "price": 5}]})
    assert FRAME.excluded.orders


def test_the_desks_tools_are_the_servers() -> None:
    from stateward.practice.servers.orders import server

    listed = {t.name: t for t in server._tool_manager.list_tools()}
    served = [
        {
            "type": "function",
            "function": {"name": name, "description": "", "parameters": listed[name].parameters},
        }
        for name in OrderDesk.tool_names()
    ]
    assert render([], served) == render([], tools())
