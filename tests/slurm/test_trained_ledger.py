"""The tokens that training was done on, through the server that probes and evaluates."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stateward.cluster.services.vllm import VllmServer
from stateward.config.load import config_from_dict
from stateward.episode import TokenPolicy, open_environment
from stateward.outcome import EpisodeRecord
from stateward.policy import open_policy
from stateward.policy.samplers.vllm import VllmSampler
from stateward.policy.turn import Sample
from stateward.store import read_records
from stateward.training.dataset import read_tasks
from stateward.training.paths import TrainPaths

pytestmark = [pytest.mark.slurm, pytest.mark.engines, pytest.mark.timeout(3600)]


class Again:
    """Has a server sample what was sampled before, turn by turn."""

    def __init__(self, sampler: VllmSampler, turns: list[list[int]]) -> None:
        self.sampler, self.turns = sampler, iter(turns)

    async def sample(self, prompt_ids: list[int], *, max_tokens: int, seed: int) -> Sample:
        return await self.sampler.sample_ids(prompt_ids, next(self.turns))


def sampled_turns(record: EpisodeRecord) -> list[list[int]]:
    """The tokens of each turn that the policy sampled."""
    ids, mask = record.tokens["ids"], record.tokens["mask"]
    turns: list[list[int]] = []
    for position, sampled in enumerate(mask):
        if sampled and not mask[position - 1]:
            turns.append([])
        if sampled:
            turns[-1].append(ids[position])
    return turns


def without_ids(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages without the ids of their tool calls, which are drawn anew for every episode."""
    kept = [{key: value for key, value in message.items() if key != "tool_call_id"} for message in messages]
    for message in kept:
        if "tool_calls" in message:
            message["tool_calls"] = [call["function"] for call in message["tool_calls"]]
    return kept


async def test_what_the_trainer_sampled_gives_the_same_ledger_through_a_server(
    campaign: Any, practice_server: VllmServer
) -> None:
    # Verl's engine sampled these in training; here the server that probes and evaluates samples the same tokens.
    run_dir = campaign.run_dir
    plan = json.loads(TrainPaths(run_dir).settings.read_text())
    config, tasks = config_from_dict(plan["config"]), read_tasks(TrainPaths(run_dir).tasks)
    opened = open_policy(Path(plan["model"]), config.policy)
    episodes = [r for r in read_records(run_dir / "train") if r.outcome.value != "void" and r.turns > 2][:6]
    assert len(episodes) == 6
    server = practice_server
    async with (
        open_environment(config.episode) as environment,
        VllmSampler(server.base_url, server.api_key, config.sampling, tokenizer=opened.tokenizer) as sampler,
    ):
        for episode in episodes:
            policy = TokenPolicy(
                renderer=opened.renderer,
                interpreter=opened.interpreter,
                sampler=Again(sampler, sampled_turns(episode)),
                fingerprint="again",
                max_model_len=config.policy.max_model_len,
                max_tokens_per_turn=config.sampling.max_tokens_per_turn,
            )
            runner = environment.runner(policy, keep_tokens=True)
            again = await runner.run(tasks[episode.trial.uid], episode.trial, episode.seed, attempt=episode.attempt)
            assert (again.outcome, again.fault_cause) == (episode.outcome, "")
            for name in ("ids", "mask", "prompt_length"):
                assert again.tokens[name] == episode.tokens[name], name
            assert without_ids(again.messages) == without_ids(episode.messages)
            assert again.final_state == episode.final_state
            # Two engines batch differently: equal but for rounding.
            difference = np.abs(np.subtract(again.tokens["logprobs"], episode.tokens["logprobs"]))
            assert difference.mean() < 0.02
