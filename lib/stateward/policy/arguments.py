"""Arguments of tool calls against the tool's JSON schema.

vLLM's parsers type an argument by the ``type``, ``enum`` and ``anyOf`` of its schema and do not follow ``$ref``, so a
nested model would stay a JSON string. `inline_refs` writes the definitions out before the parser sees the schema.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

_COMBINATIONS = ("anyOf", "oneOf", "allOf")


def read_arguments(name: str, raw: str) -> tuple[dict[str, Any], str]:
    """The arguments of a call of tool `name` from their JSON text, and what is wrong with them (then ``{}``).

    Python reads NaN, Infinity and numbers beyond a float, which JSON does not have and no record could keep.
    """
    try:
        value = json.loads(raw, parse_constant=_no_number, parse_float=_finite)
    except (ValueError, RecursionError) as bad:
        return {}, f"the arguments of {name} are not valid JSON: {bad}"
    if not isinstance(value, dict):
        return {}, f"the arguments of {name} must be an object, got {value!r}"
    return value, ""


def inline_refs(schema: Mapping[str, Any]) -> dict[str, Any]:
    """`schema` with local references (``#/$defs/...``) replaced by what they point to.

    A reference inside its own definition stays as it is: a recursive type cannot be written out.
    """
    if "$ref" not in str(schema):
        return dict(schema)
    out: dict[str, Any] = _inline(schema, schema, ())
    rest = {key: value for key, value in out.items() if key != "$defs"}
    return out if "$ref" in str(rest) else rest


def declared_types(schema: Any) -> frozenset[str]:
    """JSON types that a property's schema allows; empty if it does not say."""
    if not isinstance(schema, Mapping):
        return frozenset()
    found: set[str] = set()
    kind = schema.get("type")
    found.update([kind] if isinstance(kind, str) else [k for k in kind or () if isinstance(k, str)])
    values = [*schema.get("enum", ()), *([schema["const"]] if "const" in schema else [])]
    found.update(_type_of(value) for value in values)
    for combination in _COMBINATIONS:
        for choice in schema.get(combination, ()):
            found |= declared_types(choice)
    return frozenset(found)


def unreadable(
    arguments: Mapping[str, Any], schema: Mapping[str, Any], coerce: Callable[[str, list[str]], Any]
) -> list[str]:
    """One sentence for each argument whose text cannot be read as any type that its schema declares.

    Only text is judged; whether a value is allowed is for the tool to say.

    Args:
        coerce: vLLM's own reading of a text as one of several types; it returns the text if that is not possible.
    """
    properties = schema.get("properties")
    if not isinstance(properties, Mapping):
        return []
    problems = []
    for name, value in arguments.items():
        types = sorted(declared_types(properties.get(name)))
        if isinstance(value, str) and types and "string" not in types and isinstance(coerce(value, types), str):
            shown = value if len(value) <= 80 else value[:80] + "…"
            problems.append(f"argument {name!r} must be {' or '.join(types)}, got {shown!r}")
    return problems


def _inline(node: Any, root: Mapping[str, Any], open_refs: tuple[str, ...]) -> Any:
    if isinstance(node, list):
        return [_inline(item, root, open_refs) for item in node]
    if not isinstance(node, Mapping):
        return node
    reference = node.get("$ref")
    if isinstance(reference, str) and reference not in open_refs:
        target = _lookup(reference, root)
        if target is not None:
            merged = {**target, **{k: v for k, v in node.items() if k != "$ref"}}
            return _inline(merged, root, (*open_refs, reference))
    return {key: value if key == "$defs" else _inline(value, root, open_refs) for key, value in node.items()}


def _lookup(reference: str, root: Mapping[str, Any]) -> Mapping[str, Any] | None:
    node: Any = root
    if not reference.startswith("#/"):
        return None
    for part in reference[2:].split("/"):
        key = part.replace("~1", "/").replace("~0", "~")
        if not isinstance(node, Mapping) or key not in node:
            return None
        node = node[key]
    return node if isinstance(node, Mapping) else None


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is not a number of JSON")


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{text[:20]} is out of range")
    return value


def _type_of(value: Any) -> str:
    if value is None:
        return "null"
    for kind, name in ((bool, "boolean"), (int, "integer"), (float, "number"), (str, "string"), (list, "array")):
        if isinstance(value, kind):
            return name
    return "object"
