"""Test modules that a run's marker expression excludes as a whole.

pytest would import them and then deselect their tests: torch, Ray, vLLM and Verl cost every process of the fast group
seconds.
"""

from __future__ import annotations

import re
from pathlib import Path


def is_excluded(module: Path, expression: str) -> bool:
    """Whether the `pytestmark` of `module` names a marker that `expression` excludes."""
    excluded = excluded_markers(expression)
    if not excluded:
        return False
    lines = re.findall(r"^pytestmark = (.*)$", module.read_text(encoding="utf-8"), re.MULTILINE)
    return bool(excluded & set(re.findall(r"pytest\.mark\.(\w+)", " ".join(lines))))


def excluded_markers(expression: str) -> set[str]:
    """The X and Y of a conjunction's `not X` and `not (X or Y)`; none if the expression is no conjunction."""
    groups = re.findall(r"\bnot \(((?:\w+ or )*\w+)\)", expression)
    conjunction = re.sub(r"\([^()]*\)", "()", expression)
    if " or " in conjunction:
        return set()
    return {marker for group in groups for marker in group.split(" or ")} | set(re.findall(r"\bnot (\w+)", conjunction))
