"""What a demonstration's customer wants: errands on orders, how they are said, and what is said only when asked.

An errand is one change to one order. Its phrases are written in `phrases`, apart from the tasks' own queries, which
nothing in this package reads.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from stateward.practice.orders import AMOUNTS, NOTES, QUANTITIES, REASONS, STATUSES
from stateward.practice.policy.phrases import OPENINGS, PHRASES, REFERENCES, TROUBLES, UNSAID, WISHES
from stateward.practice.policy.worlds import World, random_address

#: Requests with their shares: single errands by their kind, then errands on two orders, or two on one.
REQUESTS: dict[str, float] = {
    "cancel": 0.16,
    "quantity": 0.08,
    "address": 0.08,
    "home": 0.08,
    "note": 0.08,
    "refund": 0.18,
    "refund part": 0.10,
    "complaint": 0.08,
    "question": 0.04,
    "quantity and address": 0.04,
    "two addresses": 0.04,
    "cancel and refund": 0.04,
    "two cancellations": 0.04,
}
#: Errands of the requests that have two.
PAIRS: dict[str, tuple[str, str]] = {
    "quantity and address": ("quantity", "address"),
    "two addresses": ("address", "address"),
    "cancel and refund": ("cancel", "refund"),
    "two cancellations": ("cancel", "cancel"),
}


@dataclass(frozen=True, kw_only=True)
class Errand:
    """`order` is a row of the world's configuration; `details` are the values of the request."""

    kind: str
    order: Mapping[str, Any]
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Request:
    """A conversation's worth.

    Attributes:
        name: of `REQUESTS`.
        unsaid: what the agent has to find out: "" (all is in the query), "by item" (the query has customer and item),
            "order id", "address" or "quantity" (said only when asked).
        facts: what the customer answers when asked, as in a task's user context.
    """

    name: str
    errands: tuple[Errand, ...]
    query: str
    unsaid: str
    facts: Mapping[str, str]


def random_request(rng: random.Random, world: World) -> Request:
    """A request on orders of one customer; sets their statuses in `world` so that rules forbid it now and then."""
    name = rng.choices(list(REQUESTS), weights=list(REQUESTS.values()))[0]
    kinds = PAIRS.get(name, (name,))
    first = rng.choice(world["orders"])
    second = rng.choice([o for o in world["orders"] if o["customer_id"] == first["customer_id"] and o is not first])
    orders = [first] if name == "quantity and address" or len(kinds) == 1 else [first, second]
    for kind, order in zip(kinds, orders, strict=False):
        _set_scene(rng, kind, order)
    if name == "two cancellations" and rng.random() < 0.7:
        rng.choice(orders)["status"] = rng.choice(STATUSES[1:3])
    details: dict[str, Any] = {}
    for kind in kinds:
        details |= _details(rng, kind, first) if kind not in details else {}
    unsaid = rng.choice(UNSAID[name]) if name in UNSAID and rng.random() < 0.4 else ""
    customer = next(c for c in world["customers"] if c["id"] == first["customer_id"])
    facts = {"customer id": customer["id"]}
    if unsaid == "by item":
        facts["item"] = first["item"]
    else:
        facts["order id"] = first["id"]
    facts |= {k: str(v) for k, v in details.items() if k in ("quantity", "address", "amount", "note", "reason")}
    facts["confirm"] = "no" if name == "cancel" and not unsaid and rng.random() < 0.3 else "yes"
    phrase = rng.choice(PHRASES[(name, unsaid)])
    if rng.random() < 0.4:
        phrase = phrase.replace("order {id}", rng.choice(REFERENCES))
    query = phrase.format(id=first["id"], item=first["item"], other=second["id"], customer=customer["id"], **details)
    query = query[0].upper() + query[1:]
    if not unsaid and rng.random() < 0.1:
        query = f"{rng.choice(OPENINGS)} {query}"
    errands = tuple(Errand(kind=k, order=orders[i % len(orders)], details=details) for i, k in enumerate(kinds))
    return Request(name=name, errands=errands, query=query, unsaid=unsaid, facts=facts)


def _set_scene(rng: random.Random, kind: str, order: dict[str, Any]) -> None:
    """The errand is possible in most demonstrations; a refund may meet an earlier one or a manager who says no."""
    if kind in ("cancel", "quantity", "address", "home", "note"):
        order["status"] = "processing" if rng.random() < 0.6 else rng.choice(STATUSES[1:])
        if kind == "home":
            order["address"] = random_address(rng)
    elif kind in ("refund", "refund part"):
        order["status"] = "delivered" if rng.random() < 0.75 else rng.choice(STATUSES[:2])
        whole = order["price"] * order["quantity"]
        if kind == "refund" and rng.random() < 0.4:
            _make_cheap(rng, order)
        if order["status"] == "delivered" and rng.random() < 0.15:
            order["refunded"] = whole if rng.random() < 0.7 else rng.choice([a for a in AMOUNTS if a <= whole])
        if rng.random() < 0.5:
            order["manager"] = rng.choice(("approved", "approved", "denied"))
    elif kind == "complaint":
        order["status"] = rng.choice(STATUSES[1:3])


def _make_cheap(rng: random.Random, order: dict[str, Any]) -> None:
    order["quantity"] = rng.choice(QUANTITIES[:2])
    order["price"] = rng.choice([a for a in AMOUNTS if a * order["quantity"] <= 100])


def _details(rng: random.Random, kind: str, order: Mapping[str, Any]) -> dict[str, Any]:
    if kind == "quantity":
        return {"quantity": rng.choice([q for q in QUANTITIES[1:] if q != order["quantity"]])}
    if kind == "address":
        return {"address": random_address(rng)}
    if kind == "note":
        note = rng.choice(NOTES)
        return {"note": note, "wish": rng.choice(WISHES[note])}
    if kind == "refund part":
        whole = order["price"] * order["quantity"]
        above = [a for a in AMOUNTS if a > whole]
        if above and rng.random() < 0.25:
            return {"amount": rng.choice(above)}
        return {"amount": rng.choice([a for a in AMOUNTS if a <= whole])}
    if kind == "complaint":
        reason = rng.choice(REASONS)
        return {"reason": reason, "trouble": rng.choice(TROUBLES[reason])}
    return {}
