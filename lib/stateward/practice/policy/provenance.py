"""Which recipe a checkpoint was made by: a hash of everything that decides its weights, kept beside them."""

from __future__ import annotations

import ast
import hashlib
import json
from dataclasses import asdict
from importlib.resources import files
from itertools import islice
from pathlib import Path
from typing import Any

from stateward.outcome import fingerprint
from stateward.practice.policy.recipe import Recipe

NOTE = "recipe.json"
#: Modules whose code decides how the same demonstrations become weights.
_MODULES = ("tokenizer.py", "circuit.py", "training.py", "make.py")
#: So many demonstrations stand for all of them: the desk, the customer, the expert and the phrases speak through them.
_WITNESSES = 64


def recipe_hash(recipe: Recipe) -> str:
    """16 hex digits over the recipe, the chat template, the first demonstrations and the training code.

    Comments, docstrings and layout do not count.
    """
    from stateward.practice.policy.demonstrations import demonstrations, order_desk

    frame = order_desk()
    package = files("stateward.practice.policy")
    return fingerprint(
        {
            "recipe": asdict(recipe),
            "template": package.joinpath("chat_template.jinja").read_text(encoding="utf-8"),
            "system": frame.system,
            "tools": frame.tools,
            "demonstrations": list(islice(demonstrations(recipe.seed, recipe.slips, frame.excluded), _WITNESSES)),
            "code": [_essence(package.joinpath(name).read_text(encoding="utf-8")) for name in _MODULES],
        }
    )


def write_note(checkpoint: Path, recipe: Recipe, **more: Any) -> None:
    """Write ``recipe.json``: the recipe, its hash, and the SHA-256 of every other file of the checkpoint."""
    sums = {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(checkpoint.iterdir()) if p.name != NOTE}
    note = {"recipe_hash": recipe_hash(recipe), "recipe": asdict(recipe), "files": sums, **more}
    (checkpoint / NOTE).write_text(json.dumps(note, indent=1) + "\n", encoding="utf-8")


def read_note(checkpoint: Path) -> dict[str, Any]:
    """The note of a whole checkpoint; empty if there is none or a file is not the one it was written for."""
    try:
        note: dict[str, Any] = json.loads((checkpoint / NOTE).read_text(encoding="utf-8"))
        for name, digest in note["files"].items():
            if hashlib.sha256((checkpoint / name).read_bytes()).hexdigest() != digest:
                return {}
    except FileNotFoundError:
        return {}
    return note


def _essence(source: str) -> str:
    """The code without comments, docstrings and layout."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return ast.dump(tree)
