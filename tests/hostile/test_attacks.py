"""Every attack, in every mode, as root (where the tests run as root) and as an ordinary user: nothing got, no harm."""

from __future__ import annotations

import functools
import importlib.util
import os
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

_SPEC = importlib.util.spec_from_file_location("hostile_table", Path(__file__).with_name("table.py"))
assert _SPEC is not None
assert _SPEC.loader is not None
table = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(table)

USERS = ("root", "user") if os.getuid() == 0 else ("user",)

#: What a mode does not protect from, as docs/security.md says.
UNPROTECTED = {
    ("no Landlock", "read a secret file"),
    ("no namespaces, no Landlock", "read a secret file"),
}


@functools.cache
def _can_be_user() -> bool:
    return bool(table.ordinary_user([]))


@functools.cache
def rows(mode: str, user: str) -> dict[str, dict[str, Any]]:
    if user == "user" and not _can_be_user():
        pytest.skip("an ordinary user cannot run this Python here")
    return {row["attack"]: row for row in table.rows_of(mode, as_user=user == "user")}


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("mode", table.MODES)
def test_attacks_get_nothing_and_change_nothing(mode: str, user: str) -> None:
    found = rows(mode, user)
    for name in table.ATTACKS:
        row = found[name]
        assert row["harm"] == [], row
        assert row["after"] == ["pass", "fail"], row
        if (mode, name) not in UNPROTECTED:
            assert row["got"] == [], row


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("mode", table.MODES)
def test_no_verdict_is_forged(mode: str, user: str) -> None:
    found = rows(mode, user)
    for name in table.FORGERIES:
        row = found[name]
        assert row["outcome"] == "void", row
        assert row["wanted"] in row["cause"], row
        assert row["after"] == ["pass", "fail"], row


@pytest.mark.parametrize("user", USERS)
def test_the_modes_are_what_they_say(user: str) -> None:
    everything = next(iter(rows("all layers", user).values()))["isolation"]
    fewest = next(iter(rows("no namespaces, no Landlock", user).values()))["isolation"]
    assert fewest in ("filter+hook", "hook")
    if "landlock" not in everything:
        pytest.skip("this kernel has no Landlock")
    assert "landlock" not in fewest


def test_without_the_layers_the_attacks_succeed() -> None:
    """So that a test above cannot pass because an attack is written wrong."""
    found = rows(table.BARE, "user" if _can_be_user() else "root")
    weak = {name for name in found if name in table.ATTACKS and not (found[name]["got"] or found[name]["harm"])}
    # The stage hides itself where no layer does it, and the last takes arguments that an attack would have to make.
    assert weak <= {"environment of the stage", "other system interfaces"}
