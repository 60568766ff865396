"""A stand-in for the episode service: two short turns without worlds, reward by the first sampled token."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from stateward.config import SamplingConfig
from stateward.outcome import Outcome
from stateward.policy.samplers.verl import VerlSampler
from stateward.training.agent_loop import EpisodeLoop
from stateward.training.groups import SessionReport
from stateward.training.rollout import EpisodeOrder, TrainedEpisode, VoidEpisode


class StandinService:
    def __init__(self, settings: str) -> None:
        self.plan = json.loads(Path(settings).read_text())

    async def run(self, order: EpisodeOrder, engines: Any) -> TrainedEpisode:
        sampler = VerlSampler(
            generate=engines.generate,
            sampling=SamplingConfig(top_k=-1, top_p=1.0),
            stop_ids=frozenset({2}),
            request_id=f"{order.uid}-{order.step}-{order.index}",
        )
        prompt = [1, 5, 8 + hash(order.uid) % 7, 2, 1, 6]
        first = await sampler.sample(prompt, max_tokens=6, seed=order.index + 1000 * order.step)
        between = [1, 5, 20, 2, 1, 6]
        second = await sampler.sample(
            [*prompt, *first.ids, *between], max_tokens=6, seed=order.index + 1000 * order.step + 1
        )
        good = first.ids[0] % 2 == 0
        if order.index == 3 and order.step == 1 and order.uid.endswith("0"):
            raise VoidEpisode(
                "sandbox", "made up", SessionReport(outcome=Outcome.VOID, reward=float("nan"), voids=("sandbox",))
            )
        return TrainedEpisode(
            prompt_ids=prompt,
            response_ids=[*first.ids, *between, *second.ids],
            response_mask=[1] * len(first.ids) + [0] * len(between) + [1] * len(second.ids),
            response_logprobs=[*first.logprobs, *([0.0] * len(between)), *second.logprobs],
            reward=float(good),
            versions=(min(sampler.versions), max(sampler.versions)),
            report=SessionReport(
                outcome=Outcome.PASS if good else Outcome.FAIL,
                reward=float(good),
                finish="done",
                turns=2,
                prompt_tokens=6,
                response_tokens=18,
                sampled_tokens=12,
                seconds={"total": 0.1},
            ),
        )


class StandinLoop(EpisodeLoop):
    async def service(self) -> Any:
        return StandinService(self.settings)
