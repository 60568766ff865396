"""Every task's first prompt is rendered with its tools in its own world before anything is trained."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from stateward.campaign.layout import model_path, selected_tasks
from stateward.config import load_config
from stateward.errors import SystemFault, UserError
from stateward.training import checks

pytestmark = pytest.mark.slow

PRACTICE = Path(__file__).parents[2] / "configs" / "practice.yaml"


def test_a_prompt_that_is_one_token_too_long_is_refused_by_name() -> None:
    config = load_config(PRACTICE)
    model, pool = model_path(config), selected_tasks(config, config.tasks.train)[:3]
    pool[1] = dataclasses.replace(pool[1], query=pool[1].query + " please" * 50)
    longest = checks.check_prompts(config, model, pool)
    assert longest > 50
    config.policy.max_prompt_tokens = longest - 1
    with pytest.raises(UserError) as caught:
        checks.check_prompts(config, model, pool)
    text = str(caught.value)
    assert f"1 of 3 tasks have a prompt of more than {longest - 1} tokens:\n  {pool[1].uid}: {longest} tokens" in text
    assert "raise policy.max_prompt_tokens by 1 or more" in text


def test_a_world_that_does_not_open_stops_the_run_before_it_starts() -> None:
    config = load_config(PRACTICE)
    pool = selected_tasks(config, config.tasks.train)[:1]
    broken = dataclasses.replace(pool[0].servers[0], command=("no-such-program",))
    with pytest.raises(SystemFault, match=pool[0].uid.replace(".", r"\.")):
        checks.check_prompts(config, model_path(config), [dataclasses.replace(pool[0], servers=(broken,))])
