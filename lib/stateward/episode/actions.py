"""How a task's `max_agent_sim_turns` is counted: as the framework does that the format comes from.

There, a turn's visible text and its calls together are one message each, a text that a tool shows to the user directly
is one as well, and all of these are actions. The message that follows the last allowed action is still kept and ends
the conversation. So of a turn whose text took the last action the calls are kept and not run; of calls that took it all
are run and the first result is kept; and behind a direct text that took it the first message of one more turn is kept.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from stateward.policy.turn import Turn


@dataclass(kw_only=True)
class Actions:
    """Actions of one episode; `most` of the task, None without a limit."""

    most: int | None
    taken: int = 0

    @property
    def spent(self) -> bool:
        return self.most is not None and self.taken >= self.most

    def follow(self, turn: Turn) -> tuple[Turn, bool]:
        """What is kept of a turn, and whether the conversation may go on to its calls."""
        kept = Turn(problems=turn.problems)
        for part in ("reasoning", "text", "calls"):
            value: Any = getattr(turn, part)
            if not value:
                continue
            kept = replace(kept, **{part: value})
            if self.spent:
                return kept, False
            self.taken += part != "reasoning"
        return kept, True
