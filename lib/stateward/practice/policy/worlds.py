"""Random order desks for demonstrations, never one that a task uses."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from typing import Any

from stateward.outcome import fingerprint
from stateward.practice.orders import (
    AMOUNTS,
    CUSTOMER_IDS,
    FIRST_NAMES,
    HOUSE_NUMBERS,
    ITEMS,
    LAST_NAMES,
    ORDER_IDS,
    QUANTITIES,
    STATUSES,
    STREETS,
)

World = dict[str, list[dict[str, Any]]]


class Excluded:
    """The worlds of the training and held-out tasks: as a whole, and order by order (id, customer)."""

    def __init__(self, worlds: Iterable[Mapping[str, Any]]) -> None:
        kept = [dict(w) for w in worlds]
        self.whole = frozenset(fingerprint(w) for w in kept)
        self.orders = frozenset((o["id"], o["customer_id"]) for w in kept for o in w["orders"])

    def meets(self, world: World) -> bool:
        """Whether `world` is a task's, or holds one of a task's orders with the same customer."""
        if fingerprint(world) in self.whole:
            return True
        return any((o["id"], o["customer_id"]) in self.orders for o in world["orders"])


def random_address(rng: random.Random) -> str:
    return f"{rng.choice(HOUSE_NUMBERS)} {rng.choice(STREETS)}"


def random_world(rng: random.Random) -> World:
    """Two or three customers with two or three orders each, in every status."""
    customers = [
        {
            "id": c,
            "name": f"{rng.choice(FIRST_NAMES)} {rng.choice(LAST_NAMES)}",
            "address": random_address(rng),
        }
        for c in sorted(rng.sample(CUSTOMER_IDS, rng.randint(2, 3)))
    ]
    counts = [rng.randint(2, 3) for _ in customers]
    ids, orders = iter(rng.sample(ORDER_IDS, sum(counts))), []
    for customer, count in zip(customers, counts, strict=True):
        orders += [_random_order(rng, next(ids), customer, item) for item in rng.sample(ITEMS, count)]
    return {"customers": customers, "orders": orders}


def _random_order(rng: random.Random, order_id: str, customer: Mapping[str, Any], item: str) -> dict[str, Any]:
    """One order whose amount is at most 500 dollars."""
    quantity = rng.choice(QUANTITIES[:4])
    return {
        "id": order_id,
        "customer_id": customer["id"],
        "item": item,
        "quantity": quantity,
        "price": rng.choice([p for p in AMOUNTS if p * quantity <= AMOUNTS[-1]]),
        "status": rng.choice(STATUSES),
        "address": customer["address"],
    }
