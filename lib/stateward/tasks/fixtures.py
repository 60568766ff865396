"""Fixtures: objects that checks ask for by a parameter's name, defined in ``conftest.yaml`` files and scenarios."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from stateward.errors import UserError, nearest
from stateward.tasks.section import section
from stateward.tasks.task import FixtureSpec
from stateward.tasks.yaml_text import Document, read

FIXTURES = "fixtures"

#: What every check may ask for without a fixture.
RUNTIME_PARAMETERS = ("x", "judge")

#: Types of the public framework that the grading process offers itself.
OWN_TYPES = frozenset({"thinkingbox.common.rubrics_judge.RubricJudge"})

#: Types that call tools over the network while grading, which no check here can.
REFUSED_TYPES = {
    "thinkingbox.common.SessionClientFixture",
    "thinkingbox.common.mcp_proxy_client.SessionClientFixture",
}


def read_fixtures(document: Document, values: dict[str, Any]) -> dict[str, FixtureSpec]:
    """The section ``fixtures`` of a document.

    Raises:
        UserError: a fixture without a dotted ``type``, or of a type that cannot work here.
    """
    found = {}
    for name, value in values.items():
        path = (FIXTURES, name)
        if not isinstance(value, dict) or not isinstance(value.get("type"), str):
            raise document.mistake(path, f"fixture {name!r} has no type", do="write type: package.module.Name")
        kind = value["type"]
        if name in RUNTIME_PARAMETERS:
            raise document.mistake(path, f"a fixture cannot be called {name!r}", "every check has one of its own")
        if "." not in kind:
            raise document.mistake(path, f"{kind!r} is not a dotted name", do="write type: package.module.Name")
        if kind in REFUSED_TYPES:
            raise document.mistake(
                path,
                f"{kind} is not supported",
                "it calls tools over the network while grading",
                "let the check read the final state in x.effects",
            )
        if kind.startswith("thinkingbox.") and kind not in OWN_TYPES and not _installed("thinkingbox"):
            raise document.mistake(
                path, f"{kind} is not available", "package thinkingbox is not installed", nearest(kind, OWN_TYPES)
            )
        found[name] = FixtureSpec(
            name=name, type=kind, parameters={key: item for key, item in value.items() if key != "type"}
        )
    return found


def conftest_fixtures(test_file: Path, root: Path) -> dict[str, FixtureSpec]:
    """The fixtures of every ``conftest.yaml`` from `root` down to the folder of `test_file`; deeper ones win."""
    found: dict[str, FixtureSpec] = {}
    folder = root
    for part in ("", *test_file.parent.relative_to(root).parts):
        folder = folder / part
        path = folder / "conftest.yaml"
        if path.is_file():
            name = f"{root.name}/{path.relative_to(root)}"
            document = read(path, name=name)
            top = section(document, (), document.data or {}, "conftest", (FIXTURES,))
            found |= read_fixtures(document, top.mapping(FIXTURES))
    return found


def fixtures_for(
    parameters: list[str], with_default: set[str], known: dict[str, FixtureSpec], place: str
) -> tuple[FixtureSpec, ...]:
    """The fixtures that a test with these parameters can reach: all of `known` if it asks for any, else none.

    Raises:
        UserError: a parameter that is neither a fixture nor ``x`` or ``judge``, and has no default.
    """
    for name in parameters:
        if name not in RUNTIME_PARAMETERS and name not in known and name not in with_default:
            raise UserError(
                f"{place}: nothing provides the parameter {name!r}",
                "a check is given x, judge, and the fixtures of its conftest.yaml files and its scenario",
                nearest(name, [*RUNTIME_PARAMETERS, *known]),
            )
    # A fixture may need another one, so the whole set goes along; the grading process makes what is asked for.
    return tuple(known.values()) if any(name in known for name in parameters) else ()


def _installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None
