"""How a test's ``init`` meets its scenario's world state."""

from __future__ import annotations

import copy
from typing import Any


def merge(base: Any, extra: Any) -> Any:
    """`extra` laid over `base`: mappings meet key by key, lists are joined, otherwise `extra` wins.

    The result shares nothing with either. (ThinkingBox documentation, "Recursive merge of server initialization".)
    """
    if isinstance(base, dict) and isinstance(extra, dict):
        out = {key: copy.deepcopy(value) for key, value in base.items() if key not in extra}
        met = {key: merge(base[key], value) if key in base else copy.deepcopy(value) for key, value in extra.items()}
        # The order is the base's, then what the extra adds: servers start in this order.
        return {key: out[key] if key in out else met[key] for key in [*base, *(k for k in extra if k not in base)]}
    if isinstance(base, list) and isinstance(extra, list):
        return copy.deepcopy(base) + copy.deepcopy(extra)
    return copy.deepcopy(extra)
