from __future__ import annotations

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateward.errors import SystemFault
from stateward.sandbox import state_diff, state_hash
from stateward.sandbox.reserved import parse_init, parse_state

states = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text("ab", max_size=2),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("xyz", min_size=1, max_size=2), inner, max_size=3)
    ),
    max_leaves=12,
)


def test_rows_name_what_changed() -> None:
    before = {"shop": {"orders": [{"id": 1, "status": "open"}, {"id": 2}], "gone": 1, "same": [1, 2]}}
    after = {"shop": {"orders": [{"id": 1, "status": "closed"}], "same": [1, 2, 3], "new": {"a": None}}}
    assert state_diff(before, after) == [
        ["shop.orders.0.status", "open", "closed"],
        ["shop.orders.1", {"id": 2}, None],
        ["shop.gone", 1, None],
        ["shop.same.2", None, 3],
        ["shop.new", None, {"a": None}],
    ]


def test_a_type_change_is_a_change() -> None:
    assert state_diff({"n": 1}, {"n": True}) == [["n", 1, True]]
    assert state_diff({"n": 1}, {"n": 1.0}) == [["n", 1, 1.0]]
    assert state_diff({"n": [1]}, {"n": {"0": 1}}) == [["n", [1], {"0": 1}]]


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e999", "-1e400", "9" * 5000])
def test_what_json_does_not_have_is_a_fault(number: str) -> None:
    """Python's own JSON writes and reads it, and no record could keep it."""
    with pytest.raises(SystemFault, match="which is not JSON") as state:
        parse_state("s", f'{{"a": [{number}]}}', False)
    with pytest.raises(SystemFault, match="which is not JSON") as init:
        parse_init("s", f'{{"status": "ok", "rate": {number}}}')
    assert (state.value.kind, init.value.kind) == ("sandbox", "init")


@given(states)
def test_equal_states_have_no_rows(state: object) -> None:
    assert state_diff({"s": state}, {"s": copy.deepcopy(state)}) == []


@given(states, states)
def test_different_states_have_rows_and_swapping_swaps_them(a: object, b: object) -> None:
    rows = state_diff({"s": a}, {"s": b})
    if not rows:
        assert a == b
    back = state_diff({"s": b}, {"s": a})
    assert sorted([r[0], repr(r[1]), repr(r[2])] for r in rows) == sorted([r[0], repr(r[2]), repr(r[1])] for r in back)


def test_the_hash_does_not_depend_on_the_order_of_keys() -> None:
    assert state_hash({"a": 1, "b": {"c": 2, "d": 3}}) == state_hash({"b": {"d": 3, "c": 2}, "a": 1})
    assert state_hash({"a": 1}) != state_hash({"a": 2})
    assert len(state_hash({})) == 16
