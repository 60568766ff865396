"""Demonstrations: random order desks and requests, the scripted expert with its slips, the real tools and customer."""

from __future__ import annotations

import inspect
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import as_file, files
from typing import Any

from stateward.practice.orders import CUSTOMER_IDS, ITEMS, NOTES, ORDER_IDS, STREETS, OrderDesk
from stateward.practice.policy.errands import random_request
from stateward.practice.policy.expert import Conversation, play
from stateward.practice.policy.worlds import Excluded, random_world
from stateward.tasks import ToolSpec, load_tasks

Messages = list[dict[str, Any]]


@dataclass(frozen=True)
class Frame:
    """What all order-desk conversations share: the system message, the tools as in a chat request, forbidden worlds."""

    system: str
    tools: list[dict[str, Any]]
    excluded: Excluded


def order_desk() -> Frame:
    """Read from the bundled dataset; of the tasks only the instructions and the worlds are used."""
    with as_file(files("stateward.practice").joinpath("dataset")) as dataset:
        tasks = [t for part in ("train", "benchmark") for t in load_tasks(dataset, dataset / f"orders_{part}.yaml")]
    systems = {task.system for task in tasks}
    if len(systems) != 1:
        raise ValueError(f"the order desk's tasks have {len(systems)} different instructions; the policy learns one")
    return Frame(systems.pop(), tools(), Excluded([task.world["orders"] for task in tasks]))


def tools() -> list[dict[str, Any]]:
    """The desk's tools; names and arguments are all that the chat template shows."""
    entries = []
    for name in OrderDesk.tool_names():
        arguments = [a for a in inspect.signature(getattr(OrderDesk, name)).parameters if a != "self"]
        schema = {"type": "object", "properties": {a: {} for a in arguments}, "required": arguments}
        entries.append(ToolSpec(name=name, input_schema=schema).to_openai())
    return entries


def single_tokens() -> list[str]:
    """What the tokenizer keeps whole."""
    return [*ORDER_IDS, *CUSTOMER_IDS, *ITEMS, *STREETS, *NOTES]


def demonstrations(seed: int, slips: Mapping[str, float], excluded: Excluded) -> Iterator[Messages]:
    """Endless conversations, without the system message; each depends on the seed and its number alone."""
    number = 0
    while True:
        yield demonstration(random.Random(f"demonstration {seed} {number}"), slips, excluded)
        number += 1


def demonstration(rng: random.Random, slips: Mapping[str, float], excluded: Excluded) -> Messages:
    """One conversation in a world that meets no task's."""
    while True:
        world = random_world(rng)
        request = random_request(rng, world)  # sets statuses, so the world is looked at afterwards
        if not excluded.meets(world):
            break
    desk = OrderDesk(world)
    conversation = Conversation(desk, request, rng, slips)
    play(conversation)
    desk.close()
    return conversation.messages
