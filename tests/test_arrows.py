"""The import arrows of the house: each area may import only what stands below it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

LIB = Path(__file__).parents[1] / "lib" / "stateward"

#: Area → the areas it may import. Areas of the same row do not know each other.
ALLOWED: dict[str, set[str]] = {}
BELOW: set[str] = set()
for row in (
    {"errors", "strict_json"},
    {"outcome", "config"},
    {"tasks", "store"},
    {"policy", "sandbox", "grading"},
    {"episode"},
    {"cluster"},
    {"training", "evaluation", "difficulty"},
):
    for area in row:
        ALLOWED[area] = BELOW | {area}
    BELOW |= row
ALLOWED["cluster"] = {"errors", "strict_json", "outcome", "config", "store", "cluster"}  # knows nothing of episodes
ALLOWED["policy"] = {"errors", "strict_json", "outcome", "config", "tasks", "policy"}
ALLOWED["sandbox"] = {"errors", "strict_json", "outcome", "config", "tasks", "sandbox"}
# The practice world uses only what a user of the library would use.
ALLOWED["practice"] = {"errors", "strict_json", "outcome", "config", "tasks", "policy", "practice"}
# The stages join everything; nothing below knows them.
ALLOWED["campaign"] = BELOW | {"practice", "campaign"}
#: Programs that stand beside what they measure or serve; the rooms import none of them. They grade their episodes.
PROGRAMS = {f"sandbox/{name}.py": {"grading"} for name in ("bench", "play", "serve", "openenv_environment")}
PROGRAMS["training/bench.py"] = {"campaign"}  # the practice policy and tasks


def area_of(path: Path) -> str:
    return path.relative_to(LIB).parts[0].removesuffix(".py")


def imports_of(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.Import):
            found |= {a.name for a in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import; write the full name"
            found |= {f"{node.module}.{a.name}" for a in node.names}
    return {name.split(".")[1] for name in found if name.startswith("stateward.")}


MODULES = sorted(p for p in LIB.rglob("*.py") if p != LIB / "__init__.py")


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(LIB)))
def test_imports_point_down(path: Path) -> None:
    wrong = imports_of(path) - ALLOWED[area_of(path)] - PROGRAMS.get(str(path.relative_to(LIB)), set())
    assert not wrong, f"{path.relative_to(LIB)} imports {sorted(wrong)}, which do not stand below {area_of(path)}"


def test_no_catch_all_rooms() -> None:
    bad = [p for p in LIB.rglob("*") if p.stem in {"utils", "helpers", "common", "misc"}]
    assert not bad, f"name these after what they hold: {bad}"
