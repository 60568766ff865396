"""The rules of ``init`` over ``world_state``, and values that survive YAML as JSON."""

from __future__ import annotations

import copy
import json

import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stateward.tasks.merge import merge
from stateward.tasks.yaml_text import parse

#: A busy machine is not a failure.
UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

KEYS = st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "S", "Zs")), max_size=5)
SCALARS = st.none() | st.booleans() | st.integers(-9, 9) | st.floats(allow_nan=False, allow_infinity=False) | KEYS
JSON = st.recursive(SCALARS, lambda c: st.lists(c, max_size=3) | st.dictionaries(KEYS, c, max_size=4), max_leaves=12)
MAPPINGS = st.dictionaries(st.sampled_from("abcd"), JSON, max_size=4)
#: Mappings that meet often and deeply.
NESTED = st.recursive(
    SCALARS | st.lists(st.integers(0, 3), max_size=3),
    lambda c: st.dictionaries(st.sampled_from("abc"), c, max_size=3),
    max_leaves=10,
)


def test_the_documented_example() -> None:
    base = {"my_list": [1, 2, 3], "my_dict": {"a": 1, "b": 2}}
    extra = {"my_list": [4, 5], "my_dict": {"b": 11, "c": 12}}
    assert merge(base, extra) == {"my_list": [1, 2, 3, 4, 5], "my_dict": {"a": 1, "b": 11, "c": 12}}


@UNHURRIED
@given(NESTED, NESTED)
def test_the_rules(base: object, extra: object) -> None:
    out = merge(base, extra)
    if isinstance(base, dict) and isinstance(extra, dict):
        assert out.keys() == base.keys() | extra.keys()
        for key in out:
            if key in base and key in extra:
                assert out[key] == merge(base[key], extra[key])
            else:
                assert out[key] == (base[key] if key in base else extra[key])
    elif isinstance(base, list) and isinstance(extra, list):
        assert out == base + extra
    else:
        assert out == extra


@UNHURRIED
@given(MAPPINGS)
def test_nothing_changes_nothing(value: dict[str, object]) -> None:
    assert merge(value, {}) == value
    assert merge({}, value) == value


@UNHURRIED
@given(MAPPINGS, MAPPINGS)
def test_the_bases_keys_come_first(base: dict[str, object], extra: dict[str, object]) -> None:
    assert list(merge(base, extra)) == [*base, *(key for key in extra if key not in base)]


@UNHURRIED
@given(NESTED, NESTED)
def test_the_result_shares_nothing(base: object, extra: object) -> None:
    before = copy.deepcopy((base, extra))
    _spoil(merge(base, extra))
    assert (base, extra) == before


@UNHURRIED
@given(NESTED, NESTED, NESTED)
def test_mappings_merge_in_any_grouping(first: object, second: object, third: object) -> None:
    """Where all three are mappings down to their leaves of one kind, it does not matter which two meet first."""
    a, b, c = ({"x": _only_mappings(value)} for value in (first, second, third))
    assert merge(merge(a, b), c) == merge(a, merge(b, c))


@UNHURRIED
@given(JSON)
def test_yaml_gives_json_back(value: object) -> None:
    text = yaml.safe_dump(value, allow_unicode=True, sort_keys=False)
    assert json.dumps(parse(text, file="a").data) == json.dumps(value)


def test_merged_keys_may_be_said_again() -> None:
    text = "base: &b {a: 1, b: 2}\nmine: {<<: *b, b: 3, c: 4}\n"
    assert parse(text, file="a").data["mine"] == {"a": 1, "b": 3, "c": 4}


def test_positions() -> None:
    text = "a:\n  - x: 1\n  - y:\n      z: 2\nb: 3\n"
    document = parse(text, file="f", first_line=10)
    assert document.where() == "f:10"
    assert document.where("a", 1, "y", "z") == "f:13"
    assert document.where("b") == "f:14"
    assert document.where("a", 7, "q") == "f:10"


def _spoil(value: object) -> None:
    if isinstance(value, dict):
        for item in value.values():
            _spoil(item)
        value["spoiled"] = True
    elif isinstance(value, list):
        value.append("spoiled")


def _only_mappings(value: object) -> object:
    """`value` with every leaf a list, so that no two values of different kinds meet."""
    return {k: _only_mappings(v) for k, v in value.items()} if isinstance(value, dict) else {"leaf": [repr(value)]}
