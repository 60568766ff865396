"""Completions for the parity test: hand-written ones, generated ones, and token noise. Deterministic by seed."""

from __future__ import annotations

import json
import random
from typing import Any

TOOLS_SCHEMA: dict[str, dict[str, Any]] = {
    "find_order": {"order_id": {"type": "string"}, "limit": {"type": "integer"}},
    "refund": {
        "order_id": {"type": "string"},
        "amount": {"type": "number"},
        "reason": {"type": ["string", "null"]},
        "notify": {"type": "boolean"},
        "lines": {"type": "array", "items": {"type": "integer"}},
        "address": {"type": "object", "properties": {"zip": {"type": "integer"}}},
        "priority": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "kind": {"enum": ["full", "part"]},
    },
    "stop": {},
}
WORDS = [
    "order",
    "refund",
    "sorry",
    "checking",
    "one moment",
    "é",
    "日本",
    "🙂",
    "1042",
    "\n",
    "\n\n",
    " ",
    "\t",
    "{",
    "}",
    '"',
]
# fmt: off
RAW_VALUES = [
    "A-17", "17", "-3", "3.0", "1e3", "null", "None", "true", "False", "1", "0", "", " ", "[1, 2]", "[1, 2", '["a"]',
    "{}", '{"zip": "80331"}', '{"zip": 1}', "two\nlines", "\n\n", " padded ", "ünïcode 🙂", "<b>html</b>", "a > b",
    "</think>", '"quoted"', "nan", "Infinity", "1e999", "0x10", "1_000", "part",
]
# fmt: on
JSON_VALUES: list[Any] = [
    "A-17",
    "17",
    17,
    -3,
    2.5,
    None,
    True,
    [1, 2],
    {"zip": 1},
    {"zip": "80331"},
    "",
    "two\nlines",
    "🙂",
]

CALL = "<tool_call>\n<function=find_order>\n<parameter=order_id>\nA-17\n</parameter>\n</function>\n</tool_call>"
JSON_CALL = '<tool_call>\n{"name": "find_order", "arguments": {"order_id": "A-17"}}\n</tool_call>'

#: Each is tried with both formats of calls in place of CALL.
WRITTEN = [
    "",
    "\n",
    "Hello.",
    "</think>",
    "</think>\n\nHello.",
    "hm\n</think>\n\nHello.",
    "<think>\nhm\n</think>\n\nHello.",
    "<think>hm</think>Hello.",
    "<think>\n\n</think>\n\nHello.",
    "hm</think>Hello.</think>Bye.",
    "hm\n</think>\n\n<think>\nmore\n</think>\n\nHello.",
    "hm <think> deeper </think> up </think> out",
    "hm",
    "<think>\nhm",
    "hm\n</think>\n\nCALL",
    "hm\n</think>\n\nOne moment.\n\nCALL",
    "hm\n</think>\n\nCALL\nCALL",
    "hm\n</think>\n\nCALLCALL",
    "hm\n</think>\n\nCALL and text behind",
    "hm\n</think>\n\nbefore CALL between CALL behind",
    "CALL",
    "hm CALL",
    "hm CALL\n</think>\n\nHello.",
    "hm CALL\n</think>\n\nCALL",
    "hm\n</think>\n\n<tool_call>",
    "hm\n</think>\n\n<tool_call>\n",
    "hm\n</think>\n\n<tool_call>\n</tool_call>",
    "hm\n</think>\n\n</tool_call>",
    "hm\n</think>\n\nuse <tool_call> tags",
    "use <tool_call> tags\n</think>\n\nHello.",
    "hm\n</think>\n\n<tool_call>\nnonsense\n</tool_call>\nHello.",
    "hm\n</think>\n\n<tool_call>\nCALL\n</tool_call>",
    "hm\n</think>\n\n<function=find_order>\n<parameter=order_id>\nA-17\n</parameter>\n</function>",
    "hm\n</think>\n\n<tool_call><function=find_order><parameter=order_id>A-17</parameter></function></tool_call>",
    "hm\n</think>\n\n<tool_call>\n<function=find_order>\n</function>\n</tool_call>",
    "hm\n</think>\n\n<tool_call>\n<function=>\n</function>\n</tool_call>",
    "hm\n</think>\n\n<tool_call>\n<function= find_order >\n</function>\n</tool_call>",
    "hm\n</think>\n\n<tool_call>\n<function=find_order\n</function>\n</tool_call>",
    "hm\n</think>\n\n<tool_call>\n<function=find_order>\n<parameter=order_id>\nA\n</function>\n</tool_call>",
    "hm\n</think>\n\n<tool_call>\n<function=find_order>\n<parameter=order_id>\nA\n<parameter=limit>\n2\n</parameter>\n</function>",
    "hm\n</think>\n\n<tool_call>\n<function=find_order>\n<parameter=limit>\n1\n</parameter>\n<parameter=limit>\n2\n</parameter>\n</function>\n</tool_call>",
    "hm\n</think>\n\n<tool_call>\n<function=find_order>\n<parameter=order_id>\n</parameter>\n</function>\n</tool_call>",
    "hm\n</think>\n\n<tool_call>\n<function=find_order>\n<parameter=order_id>\n\n\nA\n\n\n</parameter>\n</function>\n</tool_call>",
    "hm\n</think>\n\n<tool_call>\n<function=nobody>\n<parameter=limit>\n1\n</parameter>\n</function>\n</tool_call>",
    "hm\n</think>\n\n<tool_call>\n<function=stop>\n<parameter=undeclared>\n1\n</parameter>\n</function>\n</tool_call>",
    'hm\n</think>\n\n<tool_call>\n{"name": "find_order"}\n</tool_call>',
    'hm\n</think>\n\n<tool_call>\n{"name": "find_order", "arguments": {}}\n',
    'hm\n</think>\n\n<tool_call>\n{"name": "find_order", "arguments": {"limit": }}\n</tool_call>',
    'hm\n</think>\n\n<tool_call>\n{"name": "find_order", "arguments": "{}"}\n</tool_call>',
    'hm\n</think>\n\n<tool_call>\n{"name": "find_order", "arguments": [1]}\n</tool_call>',
    'hm\n</think>\n\n<tool_call>\n{"name": "find_order", "arguments": null}\n</tool_call>',
    'hm\n</think>\n\n<tool_call>\n[{"name": "find_order", "arguments": {}}]\n</tool_call>',
    'hm\n</think>\n\n<tool_call>{"arguments": {"limit": 1}, "name": "find_order"}</tool_call>',
    "hm\n</think>\n\n<|im_start|>assistant\nHello.",
    "hm\n</think>\n\n<tool_response>\nfaked\n</tool_response>",
    "hm\n</think>\n\nHello 🙂 日本 é\u0301.",
    "hm\n</think>\n\n   \n\t ",
    "hm\n</think>\n\n  \nCALL\n \n",
]


def written(call: str) -> list[str]:
    return [text.replace("CALL", call) for text in WRITTEN]


def generated(rng: random.Random, kind: str) -> str:
    """A turn in the format of `kind` (xml or json), often with one or two mistakes in it."""
    thought = _words(rng, 8)
    opening = rng.choice(["", "", "<think>\n", "<think>"])
    closing = rng.choice(["\n</think>\n\n", "\n</think>\n\n", "</think>", "\n</think>\n", ""])
    said = _words(rng, 6) if rng.random() < 0.5 else ""
    make = _xml_call if kind == "xml" else _json_call
    calls = [make(rng) for _ in range(rng.choice([0, 1, 1, 1, 2, 3]))]
    text = opening + thought + closing + said + rng.choice(["\n\n", "\n", ""]) + rng.choice(["\n", ""]).join(calls)
    for _ in range(rng.choice([0, 0, 0, 1, 2])):
        text = _spoil(rng, text)
    return text


def noise(rng: random.Random, ids: list[int], vocabulary: int) -> list[int]:
    """Token ids changed at random: dropped, doubled, swapped, replaced; or nothing but noise."""
    if rng.random() < 0.2 or not ids:
        return [rng.randrange(vocabulary) for _ in range(rng.randrange(1, 40))]
    out = list(ids)
    for _ in range(rng.randrange(1, 5)):
        at = rng.randrange(len(out))
        change = rng.randrange(4)
        if change == 0 and len(out) > 1:
            del out[at]
        elif change == 1:
            out.insert(at, out[at])
        elif change == 2:
            other = rng.randrange(len(out))
            out[at], out[other] = out[other], out[at]
        else:
            out[at] = rng.randrange(vocabulary)
    return out


def _words(rng: random.Random, most: int) -> str:
    return "".join(rng.choice(WORDS) + rng.choice(["", " "]) for _ in range(rng.randrange(most)))


def _xml_call(rng: random.Random) -> str:
    name = rng.choice([*TOOLS_SCHEMA, "nobody"])
    keys = [*TOOLS_SCHEMA.get(name, {}), "undeclared"]
    chosen = rng.sample(keys, rng.randrange(len(keys) + 1))
    body = "".join(f"<parameter={key}>\n{rng.choice(RAW_VALUES)}\n</parameter>\n" for key in chosen)
    return f"<tool_call>\n<function={name}>\n{body}</function>\n</tool_call>"


def _json_call(rng: random.Random) -> str:
    name = rng.choice([*TOOLS_SCHEMA, "nobody"])
    keys = [*TOOLS_SCHEMA.get(name, {}), "undeclared"]
    arguments = {key: rng.choice(JSON_VALUES) for key in rng.sample(keys, rng.randrange(len(keys) + 1))}
    body = json.dumps({"name": name, "arguments": arguments}, ensure_ascii=rng.random() < 0.5)
    return f"<tool_call>\n{body}\n</tool_call>"


def _spoil(rng: random.Random, text: str) -> str:
    marks = [
        "<tool_call>",
        "</tool_call>",
        "</think>",
        "<think>",
        "</function>",
        "</parameter>",
        "<function=",
        "{",
        "}",
        ">",
        "\n",
    ]
    mark = rng.choice(marks)
    if mark in text and rng.random() < 0.6:
        return text.replace(mark, rng.choice(["", mark[:-1], mark * 2, " " + mark]), 1)
    at = rng.randrange(len(text) + 1)
    return text[:at] if rng.random() < 0.3 else text[:at] + mark + text[at:]
