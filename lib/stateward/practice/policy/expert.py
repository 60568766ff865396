"""The scripted expert: the order desk's rules as a program, with slips at the points where a rule decides.

A slip is a choice against a rule, made with a set probability. They are what the trained model does wrong now and then,
and what reinforcement learning can teach it to leave: each is one decision, and the right choice is always in its
repertoire.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from typing import Any

from stateward.practice.orders import OrderDesk
from stateward.practice.policy.errands import Errand, Request
from stateward.practice.user import answer

#: A refund above this needs the manager's approval (rule 5 of the order desk).
APPROVAL_ABOVE = 100
#: What is asked for what the customer left unsaid.
QUESTIONS = {
    "order id": "What is the order id?",
    "quantity": "What quantity do you want?",
    "address": "What is the new address?",
}


class Conversation:
    """Messages as they arise between the expert, the real tools and the real scripted customer."""

    def __init__(self, desk: OrderDesk, request: Request, rng: random.Random, slips: Mapping[str, float]) -> None:
        self.desk, self.request, self.rng, self.slips = desk, request, rng, slips
        self.messages: list[dict[str, Any]] = [{"role": "user", "content": request.query}]
        self.slipped: list[str] = []

    def slips_at(self, name: str) -> bool:
        """Decide whether the slip `name` happens; remembered in `slipped`."""
        happens = self.rng.random() < self.slips[name]
        if happens:
            self.slipped.append(name)
        return happens

    def call(self, name: str, **arguments: Any) -> dict[str, Any]:
        text = self.desk.call(name, arguments)
        call = {"type": "function", "function": {"name": name, "arguments": arguments}}
        self.messages += [
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "content": text},
        ]
        result: dict[str, Any] = json.loads(text)
        return result

    def ask(self, question: str) -> str:
        self.messages.append({"role": "assistant", "content": question})
        reply, done = answer(question, dict(self.request.facts), self.rng)
        if done:
            raise AssertionError(f"not understood as a question: {question!r}")
        self.messages.append({"role": "user", "content": reply})
        return reply

    def finish(self, text: str) -> None:
        self.messages.append({"role": "assistant", "content": f"{text} <DONE>"})


def play(conversation: Conversation) -> None:
    """Carry out every errand of the request, with slips, and say what was done."""
    c, said = conversation, []
    shown: dict[str, dict[str, Any]] = {}
    if c.request.unsaid in QUESTIONS and c.slips_at("gives up instead of asking"):
        c.finish("I need to know more.")
        return
    for number, errand in enumerate(c.request.errands):
        if number and c.slips_at("forgets the second"):
            break
        order_id = find_order(c, errand)
        if order_id not in shown:
            shown[order_id] = c.call("get_order", order_id=order_id)
        said.append(_WAYS[errand.kind](c, errand, shown[order_id]))
    c.finish(" ".join(said))


def find_order(c: Conversation, errand: Errand) -> str:
    """The order's id: from the query, from the customer, or from the customer's list by its item."""
    if c.request.unsaid == "order id":
        c.ask(QUESTIONS["order id"])
    if c.request.unsaid != "by item":
        return str(errand.order["id"])
    orders = c.call("list_orders", customer_id=errand.order["customer_id"])
    others = [order_id for order_id in orders if order_id != errand.order["id"]]
    return c.rng.choice(others) if c.slips_at("takes another of the list") else str(errand.order["id"])


def cancel(c: Conversation, errand: Errand, order: dict[str, Any]) -> str:
    oid = order["order_id"]
    if order["status"] == "cancelled":
        return refuse(order)
    if order["status"] != "processing" and not c.slips_at("cancels in a wrong status"):
        return refuse(order)
    if order["status"] == "processing" and c.slips_at("refuses to cancel"):
        return refuse(order)
    if not c.slips_at("cancels without asking"):
        reply = c.ask(f"Shall I cancel {oid}?")
        if reply.startswith("No") and not c.slips_at("cancels against a no"):
            return f"{oid} stays as it is."
    c.call("cancel_order", order_id=oid)
    return f"{oid} is cancelled."


def change(c: Conversation, errand: Errand, order: dict[str, Any]) -> str:
    """A new quantity, address or note."""
    oid, kind, details = order["order_id"], errand.kind, errand.details
    if order["status"] != "processing" and not c.slips_at(f"changes {kind} in a wrong status"):
        return refuse(order)
    if order["status"] == "processing" and c.slips_at(f"refuses {kind}"):
        return refuse(order)
    if kind == "quantity":
        if c.request.unsaid == "quantity":
            c.ask(QUESTIONS["quantity"])
        c.call("change_quantity", order_id=oid, quantity=details["quantity"])
    elif kind == "note":
        c.call("add_note", order_id=oid, note=details["note"])
    elif kind == "address":
        if c.request.unsaid == "address":
            c.ask(QUESTIONS["address"])
        c.call("change_address", order_id=oid, address=details["address"])
    elif c.slips_at("keeps the old address"):
        c.call("change_address", order_id=oid, address=order["address"])
    else:
        home = c.call("get_customer", customer_id=order["customer_id"])["address"]
        c.call("change_address", order_id=oid, address=home)
    return f"{oid} is changed."


def refund(c: Conversation, errand: Errand, order: dict[str, Any]) -> str:
    oid, whole = order["order_id"], order["amount"]
    amount = errand.details.get("amount", whole)
    if order["status"] != "delivered" and not c.slips_at("refunds in a wrong status"):
        return refuse(order)
    if order["refunded"] and not c.slips_at("refunds twice"):
        return f"{oid} has a refund already."
    if amount > whole and not c.slips_at("refunds too much"):
        return f"{oid} cost only {whole} dollars."
    if amount < whole and c.slips_at("refunds the whole"):
        amount = whole
    if amount > APPROVAL_ABOVE:
        if not c.slips_at("skips approval"):
            approval = c.call("request_approval", order_id=oid)["approval"]
            if approval != "approved" and not c.slips_at("refunds against the manager"):
                return f"The manager denied a refund of {oid}."
    elif c.slips_at("asks approval in vain"):
        c.call("request_approval", order_id=oid)
    c.call("refund_order", order_id=oid, amount=amount)
    return f"{amount} dollars of {oid} are refunded."


def complain(c: Conversation, errand: Errand, order: dict[str, Any]) -> str:
    oid = order["order_id"]
    if c.slips_at("refunds a complaint"):
        c.call("refund_order", order_id=oid, amount=order["amount"])
        return f"{order['amount']} dollars of {oid} are refunded."
    c.call("escalate_order", order_id=oid, reason=errand.details["reason"])
    return f"{oid} is escalated."


def tell(c: Conversation, errand: Errand, order: dict[str, Any]) -> str:
    return f"{order['order_id']} is {order['status']}, {order['amount']} dollars."


def refuse(order: dict[str, Any]) -> str:
    return f"{order['order_id']} is {order['status']}, so I cannot do that."


_WAYS: dict[str, Callable[[Conversation, Errand, dict[str, Any]], str]] = {
    "cancel": cancel,
    "quantity": change,
    "address": change,
    "home": change,
    "note": change,
    "refund": refund,
    "refund part": refund,
    "complaint": complain,
    "question": tell,
}
