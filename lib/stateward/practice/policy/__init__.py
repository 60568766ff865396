"""The practice policy: a tiny Qwen3 with its own tokenizer that works at the order desk, rightly now and then.

The checkpoint is part of the package. `ensure_policy` returns it as long as it is what the recipe says; after a change
of the recipe, the demonstrations or the desk it makes a new one, once, in the user's cache.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path

from stateward.practice.policy.provenance import read_note, recipe_hash
from stateward.practice.policy.recipe import RECIPE, Recipe

__all__ = ["RECIPE", "SHIPPED", "Recipe", "ensure_policy"]

#: The checkpoint that comes with the package, in Hugging Face format.
SHIPPED = Path(__file__).parent / "checkpoint"


def ensure_policy() -> Path:
    """Directory of a checkpoint of the present recipe: the shipped one, a cached one, or one made now (minutes)."""
    wanted = _present_hash()
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    cached = base / "stateward" / f"practice-policy-{wanted}"
    for place in (SHIPPED, cached):
        if read_note(place).get("recipe_hash") == wanted:
            return place
    from stateward.practice.policy.make import make

    make(RECIPE, cached)
    return cached


@functools.cache
def _present_hash() -> str:
    # Once in a process, whose code and dataset stay as they are: it takes 0.3 s, and a stage asks several times.
    return recipe_hash(RECIPE)
