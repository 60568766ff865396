"""How a test's ``init`` meets its scenario's world state."""

from __future__ import annotations

import copy
from typing import Any


def merge(base: Any, extra: Any) -> Any:
    """`extra` laid over `base`: mappings meet key by key, lists are joined, otherwise `extra` wins.

    The keys stand in the order of `base`, then those that `extra` adds: servers start in this order. The result shares
    nothing with either. (ThinkingBox documentation, "Recursive merge of server initialization".)
    """
    if isinstance(base, dict) and isinstance(extra, dict):
        out = {key: merge(value, extra[key]) if key in extra else copy.deepcopy(value) for key, value in base.items()}
        return out | {key: copy.deepcopy(value) for key, value in extra.items() if key not in base}
    if isinstance(base, list) and isinstance(extra, list):
        return copy.deepcopy(base) + copy.deepcopy(extra)
    return copy.deepcopy(extra)
