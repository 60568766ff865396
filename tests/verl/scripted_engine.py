"""A rollout engine that computes nothing, in a process of its own: it answers every request with the same tokens.

Imports neither vLLM nor Verl, so that its process is there in two seconds. `scripted_rollout` makes it known to Verl.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

TOKENS = [8, 9, 10]


@dataclass
class Output:
    """The fields of Verl's ``TokenOutput`` that are read."""

    token_ids: list[int] = field(default_factory=lambda: list(TOKENS))
    log_probs: list[float] = field(default_factory=lambda: [-4.0] * len(TOKENS))
    stop_reason: str = "completed"
    extra_fields: dict[str, Any] = field(default_factory=lambda: {"num_cached_tokens": 16})


class ScriptedServer:
    async def generate(self, **_: Any) -> Output:
        return Output()

    async def sleep(self) -> None:
        return None

    async def wake_up(self) -> None:
        return None
