"""Episodes without worlds and without sampling: their tokens depend on task, index and step alone.

Every second one passes. Two runs over the same steps then train on the same batches, whatever was killed in between. A
step waits as long as the file ``hold-STEP`` stands beside the settings, so that a test can stop a run where it wants.
"""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

from stateward.outcome import Outcome
from stateward.training.agent_loop import EpisodeLoop
from stateward.training.groups import SessionReport
from stateward.training.rollout import EpisodeOrder, TrainedEpisode


class ScriptedService:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    async def run(self, order: EpisodeOrder, engines: Any) -> TrainedEpisode:
        while (self.folder / f"hold-{order.step}").exists():  # noqa: ASYNC110 - another process removes it
            await asyncio.sleep(0.05)
        draw = random.Random(f"{order.uid}|{order.index}|{order.step}")
        prompt = [1, 5, 8 + draw.randrange(7), 2, 1, 6]
        response = [draw.randrange(8, 60) for _ in range(draw.randrange(4, 12))]
        passed = order.index % 2 == 0
        return TrainedEpisode(
            prompt_ids=prompt,
            response_ids=response,
            response_mask=[1] * len(response),
            response_logprobs=[-4.0] * len(response),
            reward=float(passed),
            versions=(order.step - 1, order.step - 1),
            report=SessionReport(
                outcome=Outcome.PASS if passed else Outcome.FAIL,
                reward=float(passed),
                finish="done",
                turns=1,
                prompt_tokens=len(prompt),
                response_tokens=len(response),
                sampled_tokens=len(response),
            ),
        )


class ScriptedLoop(EpisodeLoop):
    async def service(self) -> Any:
        return ScriptedService(Path(self.settings).parent)
