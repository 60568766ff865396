"""Arguments of tool calls against the tool's JSON schema.

vLLM's parsers type an argument by the ``type``, ``enum`` and ``anyOf`` of its schema; they follow no ``$ref`` and see
no ``const``, so a nested model would stay a JSON string. `typed_schema` says both in their words.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from stateward.strict_json import TooDeep, read_json

_COMBINATIONS = ("anyOf", "oneOf", "allOf")
_DEEPEST = 64  # levels of nesting; every JSON reader on the way to a tool has a limit of its own, and few reach 200


def read_arguments(name: str, raw: str) -> tuple[dict[str, Any], str]:
    """The arguments of a call of tool `name` from their JSON text, and what is wrong with them (then ``{}``).

    Python reads more than JSON has and than a tool or a record could take: NaN, Infinity, numbers beyond a float,
    halves of surrogate pairs, nesting without end. What a policy writes must never become a fault of ours.
    """
    try:
        value = read_json(raw)
        json.dumps(value, ensure_ascii=False).encode()
    except (TooDeep, RecursionError):
        return {}, f"the arguments of {name} are nested deeper than {_DEEPEST} levels"
    except ValueError as bad:
        return {}, f"the arguments of {name} are not valid JSON: {bad}"
    if not isinstance(value, dict):
        return {}, f"the arguments of {name} must be an object, got {value!r}"
    if _is_deep(value):
        return {}, f"the arguments of {name} are nested deeper than {_DEEPEST} levels"
    return value, ""


def typed_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """`schema` with local references (``#/$defs/...``) replaced by what they point to, and ``const`` told as ``enum``.

    Each definition is one object, wherever it is referred to: a recursive type becomes a structure that holds itself,
    and types that refer to one another do not multiply. What stands beside a reference (a description) types nothing.
    """
    out: dict[str, Any] = _resolve(schema, schema, {}, ())
    out.pop("$defs", None)
    return out


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
        if isinstance(value, str) and types and "string" not in types and not _can_be(value, types, coerce):
            shown = value if len(value) <= 80 else value[:80] + "…"
            problems.append(f"argument {name!r} must be {' or '.join(types)}, got {shown!r}")
    return problems


def _resolve(node: Any, root: Mapping[str, Any], made: dict[str, dict[str, Any]], under: tuple[str, ...]) -> Any:
    """`under`: references that are open with nothing but combinations between; one in itself says nothing."""
    if isinstance(node, list):
        return [_resolve(item, root, made, under) for item in node]
    if not isinstance(node, Mapping):
        return node
    reference = node.get("$ref")
    if isinstance(reference, str) and (target := _lookup(reference, root)) is not None:
        if reference in under:
            return {}
        if reference not in made:
            made[reference] = {}
            made[reference].update(_resolve(target, root, made, (*under, reference)))
        return made[reference]
    out = {
        key: value if key == "$defs" else _resolve(value, root, made, under if key in _COMBINATIONS else ())
        for key, value in node.items()
    }
    if "const" in out and "enum" not in out and not isinstance(out["const"], Mapping):
        out["enum"] = [out["const"]]
    return out


def _can_be(text: str, types: list[str], coerce: Callable[[str, list[str]], Any]) -> bool:
    try:
        return not isinstance(coerce(text, types), str)
    except RecursionError:
        return False


def _is_deep(value: Any) -> bool:
    level = [value]
    for _ in range(_DEEPEST):
        level = [
            inner for v in level if isinstance(v, dict | list) for inner in (v.values() if isinstance(v, dict) else v)
        ]
        if not level:
            return False
    return True


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


def _type_of(value: Any) -> str:
    if value is None:
        return "null"
    for kind, name in ((bool, "boolean"), (int, "integer"), (float, "number"), (str, "string"), (list, "array")):
        if isinstance(value, kind):
            return name
    return "object"
