"""What an episode costs outside the engine, in our loop and in Verl's.

Processor time with an engine that answers at once; the clock with one that takes a while and no processor, as on a GPU.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from types import SimpleNamespace
from typing import Any

import psutil

from stateward.policy.checkpoint import load_tokenizer
from stateward.training.engines import EngineClient
from stateward.training.plan import TrainPlan
from stateward.training.rollout import EpisodeOrder, EpisodeService

#: What the slower engine takes for a turn: a hundred tokens of a large policy.
SECONDS = 2.0


class _Engine:
    """An engine of `tokens` ordinary tokens a turn, which take `seconds`."""

    seconds = 0.0

    def __init__(self, ids: Sequence[int], tokens: int) -> None:
        async def answer(**_: Any) -> Any:
            await asyncio.sleep(self.seconds)
            return SimpleNamespace(
                token_ids=random.choices(ids, k=tokens),
                log_probs=[-1.0] * tokens,
                stop_reason="completed",
                extra_fields={"global_steps": 0},
                num_preempted=0,
                routed_experts=None,
            )

        self.generate = SimpleNamespace(remote=answer)
        self.answer = answer


def measure_cpu(plan: TrainPlan, uids: Sequence[str], size: int, tokens: int) -> dict[str, list[float]]:
    """Milliseconds an episode: ``verl`` in its process; ``ours`` in ours, and ``world`` in those of world and grading.
    ``verl_clock`` and ``ours_clock``: seconds of a round with the slower engine.

    A value for each of five rounds, after one that is not counted.
    """
    return asyncio.run(_measure(plan, uids, size, tokens))


async def _measure(plan: TrainPlan, uids: Sequence[str], size: int, tokens: int) -> dict[str, list[float]]:
    service = await EpisodeService.open(plan.paths.settings)
    try:
        tokenizer = load_tokenizer(plan.model)
        special = set(tokenizer.all_special_ids)
        engine = _Engine([i for i in range(len(tokenizer)) if i not in special], tokens)
        client = EngineClient({"engine": engine})
        plain = _verls_loop(plan, engine, tokenizer)

        async def ours(number: int) -> None:
            orders = [EpisodeOrder(uid=uid, step=number, index=i) for uid in uids for i in range(size)]
            await asyncio.gather(*(service.run(order, client) for order in orders))

        async def whole(number: int) -> None:
            await ours(number)
            await service.environment.sandbox.settled()  # the end of a world is part of what it costs

        async def verls(number: int) -> None:
            await asyncio.gather(*(plain() for _ in range(size * len(uids))))

        found: dict[str, list[float]] = {name: [] for name in ("verl", "ours", "world", "verl_clock", "ours_clock")}
        for number in range(6):
            here, _ = await _cost(verls, number)
            own, world = await _cost(whole, number)
            if number:
                for name, value in (("verl", here), ("ours", own), ("world", world)):
                    found[name].append(1000 * value / (size * len(uids)))
        engine.seconds = SECONDS
        for number in range(6, 11):
            for name, play in (("verl_clock", verls), ("ours_clock", ours)):
                began = time.perf_counter()
                await play(number)
                found[name].append(time.perf_counter() - began)
                await service.environment.sandbox.settled()
        return found
    finally:
        await service.close()


async def _cost(play: Callable[[int], Awaitable[None]], number: int) -> tuple[float, float]:
    """Seconds of this process, and of those below it."""
    before = _times()
    await play(number)
    after = _times()
    return after[0] - before[0], after[1] - before[1]


def _times() -> tuple[float, float]:
    me = psutil.Process()
    # Worlds that ended are in the times of whoever started them.
    below = sum(sum(process.cpu_times()[:4]) for process in me.children(recursive=True) if process.is_running())
    return sum(me.cpu_times()[:2]), below


def _verls_loop(plan: TrainPlan, engine: _Engine, tokenizer: Any) -> Callable[[], Awaitable[Any]]:
    """Verl makes a loop for every episode (verl 0.9.1, ``AgentLoopWorker._run_agent_loop``)."""
    from hydra import compose, initialize_config_module
    from verl.experimental.agent_loop.agent_loop import DictConfigWrap, ToolListWrap
    from verl.experimental.agent_loop.single_turn_agent_loop import SingleTurnAgentLoop
    from verl.utils.dataset.rl_dataset import RLHFDataset

    with initialize_config_module("verl.trainer.config", version_base=None):
        config = compose("ppo_trainer", overrides=[override.render() for override in plan.overrides])
    messages = [{"role": "user", "content": " ".join(["order"] * 280)}]

    async def run() -> Any:
        loop = SingleTurnAgentLoop(
            trainer_config=DictConfigWrap(config=config),
            server_manager=SimpleNamespace(generate=engine.answer),
            tokenizer=tokenizer,
            processor=None,
            hf_model_type=None,
            dataset_cls=RLHFDataset,
            data_config=DictConfigWrap(config.data),
            tools=ToolListWrap([]),
        )
        return await loop.run({}, raw_prompt=messages)

    return run


def table(found: dict[str, list[float]]) -> list[str]:
    """Markdown rows of medians and ranges."""
    titles = {
        "verl": "Verl's single-turn loop",
        "ours": "our loop: rendering, interpreting, the record",
        "world": "its world and grading, in their processes",
    }
    rows = ["| CPU an episode, outside the engine | median ms | shortest | longest |", "|---|---:|---:|---:|"]
    for name, title in titles.items():
        values = sorted(found[name])
        rows.append(f"| {title} | {values[len(values) // 2]:.1f} | {values[0]:.1f} | {values[-1]:.1f} |")
    rows += ["", f"| all of them at once, with an engine that takes {SECONDS:g} s | median s | shortest | longest |"]
    rows.append("|---|---:|---:|---:|")
    for name, title in (("verl_clock", "Verl's single-turn loop"), ("ours_clock", "our loop, world and grading")):
        values = sorted(found[name])
        rows.append(f"| {title} | {values[len(values) // 2]:.2f} | {values[0]:.2f} | {values[-1]:.2f} |")
    return rows
