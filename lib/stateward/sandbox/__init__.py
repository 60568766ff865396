"""Isolated tool servers: one fresh world an episode.

Names are resolved when they are first used: the processes of a sandbox import `stateward.sandbox.inside`, sometimes
under an interpreter that has none of the client's requirements.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stateward.sandbox.limits import SandboxLimits as SandboxLimits
    from stateward.sandbox.opening import Opening as Opening
    from stateward.sandbox.replay import replay_history as replay_history
    from stateward.sandbox.sandbox import Sandbox as Sandbox
    from stateward.sandbox.state import state_diff as state_diff
    from stateward.sandbox.state import state_hash as state_hash
    from stateward.sandbox.world import Scene as Scene
    from stateward.sandbox.world import ToolResult as ToolResult
    from stateward.sandbox.world import World as World

_HOMES = {
    "Opening": "opening",
    "Sandbox": "sandbox",
    "SandboxLimits": "limits",
    "Scene": "world",
    "ToolResult": "world",
    "World": "world",
    "replay_history": "replay",
    "state_diff": "state",
    "state_hash": "state",
}
__all__ = [
    "Opening",
    "Sandbox",
    "SandboxLimits",
    "Scene",
    "ToolResult",
    "World",
    "replay_history",
    "state_diff",
    "state_hash",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
