"""A shard refuses tasks that do not fit the model before it loads one, by name and with their lengths."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from stateward.campaign import sampled, sampling
from stateward.campaign.layout import selected_tasks
from stateward.campaign.prompts import check_prompts
from stateward.config import load_config
from stateward.errors import UserError

PRACTICE = Path(__file__).parents[2] / "configs" / "practice.yaml"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def test_long_prompts_are_refused_and_closed_worlds_are_not_judged(tmp_path: Path) -> None:
    config = load_config(PRACTICE, [f"run_dir={tmp_path}"])
    plan = sampling.plan_probe(config)
    model = plan.sampled
    assert isinstance(model, sampled.Checkpoint)
    tasks = selected_tasks(config, config.tasks.train)[:3]
    tasks[1] = dataclasses.replace(tasks[1], query=tasks[1].query + " please" * 50)
    broken = dataclasses.replace(tasks[2].servers[0], command=("no-such-program",))
    tasks[2] = dataclasses.replace(tasks[2], servers=(broken,))
    longest = check_prompts(config, model, tasks, trainable=True)
    config.policy.max_prompt_tokens = longest - 1
    with pytest.raises(UserError) as caught:
        check_prompts(config, model, tasks, trainable=True)
    assert f"{tasks[1].uid}: {longest} tokens" in str(caught.value)
    # An evaluation only needs room for an answer.
    assert check_prompts(config, model, tasks, trainable=False) == longest
    with pytest.raises(UserError, match=r"evaluate\.max_model_len by 1 or more"):
        check_prompts(config, dataclasses.replace(model, max_model_len=longest), tasks, trainable=False)


def test_a_shard_asks_before_it_opens_its_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = load_config(PRACTICE, [f"run_dir={tmp_path}", "policy.max_prompt_tokens=5"])
    config.episode.user.kind = "scripted"
    ((shard, _),) = sampling.write_shards(sampling.plan_probe(config), 1)
    spec = json.loads(shard.read_text())
    shard.write_text(json.dumps({**spec, "uids": spec["uids"][:2]}))

    def opened(self: sampled.Checkpoint, log: Path) -> None:
        raise AssertionError("the model was loaded")

    monkeypatch.setattr(sampled.Checkpoint, "open", opened)
    with pytest.raises(UserError, match="2 of 2 tasks have a prompt of more than 5 tokens"):
        sampling.run_shard(str(shard))
