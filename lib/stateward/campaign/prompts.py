"""Do the tasks of a shard fit the model? Found out before the model is loaded, so that no GPU waits for the answer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from stateward.campaign.sampled import Checkpoint
from stateward.config import Config
from stateward.tasks.task import Task


def check_prompts(config: Config, model: Checkpoint, tasks: Sequence[Task], *, trainable: bool) -> int:
    """Render every task's first prompt in its own world, with its tools. Returns the longest one's tokens.

    A task whose world does not open is not judged here: its trials will be void, with the cause.

    Args:
        trainable: the tasks may be trained on, so their prompts must fit what training holds for prompts; otherwise a
            prompt must leave room for an answer.

    Raises:
        UserError: prompts that are too long, or that the template refuses, by name; or as `check_tasks` does.
    """
    from stateward.episode import measure_prompts, open_environment
    from stateward.policy import open_policy, preflight

    async def measure() -> int:
        opened = open_policy(model.path, config.policy)
        async with open_environment(config.episode) as environment:
            lengths = await measure_prompts(environment, opened, tasks, concurrency=config.episode.concurrency)
        if trainable:
            limit, setting = config.policy.max_prompt_tokens, "policy.max_prompt_tokens"
        else:
            limit, setting = model.max_model_len - 1, "evaluate.max_model_len"
        return preflight.check_prompts(lengths, limit=limit, setting=setting)

    return asyncio.run(measure())


def check_tasks(config: Config, tasks: Sequence[Task]) -> None:
    """Open every task's world and load its check, for a model whose prompts are counted elsewhere.

    Raises:
        UserError: a task contradicts its tool servers, or its check does not load.
    """
    from stateward.episode import open_environment, prove_tasks

    async def prove() -> None:
        async with open_environment(config.episode) as environment:
            await prove_tasks(environment, tasks, concurrency=config.episode.concurrency)

    asyncio.run(prove())
