"""Whether two runs may be compared: every condition that can change an outcome or a figure must be equal.

The conditions are flat names such as ``settings.sampling.temperature``, ``trials``, ``tasks``, ``versions.vllm``,
``commit``. The policies' weights are what is compared, so their fingerprints are not among them. A condition that one
run does not state counts as different: nobody can say that it was equal.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from stateward.errors import UserError, nearest
from stateward.evaluation.plan import Plan
from stateward.outcome import fingerprint

UNKNOWN = "not stated"
_GROUPS = ("server", "versions")


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One condition that is not equal. `allowed` if the person who asked for the report named it."""

    name: str
    base: Any
    tuned: Any
    allowed: bool = False

    def sentence(self) -> str:
        return f"{self.name}: {_short(self.base)} → {_short(self.tuned)}"


def conditions(plan: Plan, prices: str) -> dict[str, Any]:
    """The run's conditions, flat. `prices` is the fingerprint of the price list its costs are computed with."""
    facts = {"tasks_listed": fingerprint(sorted(plan.uids)), "prices": prices, **plan.facts}
    return _flat(facts)


def conditions_fingerprint(plan: Plan, prices: str) -> str:
    """One value that two comparable runs share; it is printed on the page."""
    return fingerprint(conditions(plan, prices))


def differences(base: Plan, tuned: Plan, prices: str, allow: Iterable[str] = ()) -> list[Difference]:
    """What differs between two runs. `allow` names conditions, or their beginnings (``versions``).

    Raises:
        UserError: `allow` names something that is not a condition of either run, or that does not differ.
    """
    a, b = conditions(base, prices), conditions(tuned, prices)
    names = [n for n in sorted(a.keys() | b.keys()) if a.get(n, UNKNOWN) != b.get(n, UNKNOWN)]
    allow = list(allow)
    for wanted in allow:
        if not any(_covers(wanted, n) for n in a.keys() | b.keys()):
            raise UserError(f"--allow-difference {wanted}: no such condition", do=nearest(wanted, a.keys() | b.keys()))
    return [
        Difference(
            name=n,
            base=a.get(n, UNKNOWN),
            tuned=b.get(n, UNKNOWN),
            allowed=any(_covers(wanted, n) for wanted in allow),
        )
        for n in names
    ]


def require_comparable(base: Plan, tuned: Plan, found: list[Difference]) -> None:
    """Refuse runs that differ in a condition nobody allowed.

    Raises:
        UserError: names every such difference and what to say if it is meant.
    """
    refused = [d for d in found if not d.allowed]
    if refused:
        raise UserError(
            f"runs {base.label} and {tuned.label} cannot be compared: they differ in"
            + "".join(f"\n  {d.sentence()}" for d in refused),
            "a difference in their figures could come from these conditions instead of from the policy",
            "evaluate both alike, or say which is meant: "
            + " ".join(f"--allow-difference {name}" for name in _grouped(refused)),
        )


def _grouped(refused: list[Difference]) -> list[str]:
    """The names to allow; of serving and versions the whole group, as one seldom differs alone."""
    return list(dict.fromkeys(d.name.partition(".")[0] if d.name.split(".")[0] in _GROUPS else d.name for d in refused))


def _short(value: Any) -> str:
    """A commit is known by its first digits."""
    return re.sub(r"\b([0-9a-f]{12})[0-9a-f]{28}\b", r"\1", str(value))


def _covers(wanted: str, name: str) -> bool:
    return name == wanted or name.startswith(wanted + ".")


def _flat(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, inner in value.items():
        if isinstance(inner, Mapping) and inner:
            out |= _flat(inner, f"{prefix}{key}.")
        else:
            out[f"{prefix}{key}"] = inner
    return out
