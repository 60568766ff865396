"""Episodes inside a rollout worker: the suite's own loop, opened once a process, with retries and a journal.

The sandbox and the grader run freshly executed parents of their own, so nothing is ever forked from a Ray actor, which
has threads.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stateward.config import Config
from stateward.config.load import config_from_dict
from stateward.episode import Environment, TokenPolicy, open_environment, store_record
from stateward.errors import SystemFault
from stateward.outcome import EpisodeRecord, Outcome, Trial
from stateward.policy import Interpreter, Renderer, open_policy, stop_tokens
from stateward.policy.samplers.verl import VerlSampler
from stateward.store import GroupCommit, Journal
from stateward.tasks.task import Task
from stateward.training.dataset import read_tasks
from stateward.training.engines import EngineClient
from stateward.training.groups import SessionReport
from stateward.training.paths import TrainPaths


class VoidEpisode(SystemFault):
    """An episode stayed void after its attempts: its group must be replaced, and must not be scored 0."""

    def __init__(self, kind: str, cause: str, report: SessionReport) -> None:
        super().__init__(kind, cause)
        self.report = report

    def __reduce__(self) -> tuple[type, tuple[str, str, SessionReport]]:  # type: ignore[override]
        return type(self), (self.kind, self.cause, self.report)


@dataclass(frozen=True, kw_only=True)
class EpisodeOrder:
    """One episode that Verl asks for. `index` counts the episodes of this task in this step; it is the trial's."""

    uid: str
    step: int
    index: int


@dataclass(frozen=True, kw_only=True)
class TrainedEpisode:
    """One valid episode as Verl trains on it: token ids, loss mask and log-probs of the response, each [R]."""

    prompt_ids: list[int]
    response_ids: list[int]
    response_mask: list[int]
    response_logprobs: list[float]
    reward: float
    versions: tuple[int, int]
    report: SessionReport


@dataclass(kw_only=True)
class EpisodeService:
    """Everything that the episodes of one worker process share."""

    config: Config
    tasks: dict[str, Task]
    environment: Environment
    renderer: Renderer
    interpreter: Interpreter
    stop_ids: frozenset[int]
    policy_id: str
    settings_id: str
    journal: GroupCommit
    stack: AsyncExitStack
    slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(1))
    #: Finished so far, void ones included.
    attempts: int = 0

    @classmethod
    async def open(cls, settings_file: Path) -> EpisodeService:
        """Open the worlds, the endpoints and the journal as the plan of the run says."""
        plan = json.loads(settings_file.read_text())  # noqa: ASYNC240 - once, before any episode
        config = config_from_dict(plan["config"])
        paths = TrainPaths(Path(plan["run_dir"]))
        opened = open_policy(Path(plan["model"]), config.policy)
        stack = AsyncExitStack()
        try:
            environment = await stack.enter_async_context(open_environment(config.episode))
            name = f"{socket.gethostname()}-{os.getpid()}-{os.urandom(3).hex()}.jsonl"
            journal = stack.enter_context(Journal(paths.shards / name))
        except BaseException:
            await stack.aclose()
            raise
        return cls(
            config=config,
            tasks=read_tasks(paths.tasks),
            environment=environment,
            renderer=opened.renderer,
            interpreter=opened.interpreter,
            stop_ids=frozenset(stop_tokens(opened.tokenizer)),
            policy_id=plan["policy"],
            settings_id=plan["settings"],
            journal=GroupCommit(journal),
            stack=stack,
            slots=asyncio.Semaphore(config.episode.concurrency),
        )

    async def close(self) -> None:
        await self.stack.aclose()

    async def run(self, order: EpisodeOrder, engines: EngineClient) -> TrainedEpisode:
        """One episode, run again with back-off while it is void. Every attempt is in the journal.

        One that passed its wall-clock limit is not run again: with the same seed it would most likely do so again, and
        the step would wait for it once more.

        Raises:
            VoidEpisode: it stayed void.
        """
        trial = Trial(
            uid=order.uid, index=order.index, policy=f"{self.policy_id}+{order.step}", settings=self.settings_id
        )
        # The step is part of the seed: the same task must not meet the same random numbers in every epoch.
        seed = (trial.seed(self.config.train.seed) + order.step * 1_000_003) & 0x7FFFFFFF
        voids: list[str] = []
        async with self.slots:
            while True:
                record, versions = await self._attempt(order, trial, seed, len(voids) + 1, engines)
                if record.outcome is not Outcome.VOID:
                    return _trained(record, versions, tuple(voids))
                voids.append(record.fault_kind)
                if record.fault_kind == "deadline" or len(voids) == self.config.train.max_attempts:
                    raise VoidEpisode(record.fault_kind, record.fault_cause, _report(record, tuple(voids)))
                await asyncio.sleep(min(30.0, 0.5 * 2 ** len(voids)))

    async def _attempt(
        self, order: EpisodeOrder, trial: Trial, seed: int, attempt: int, engines: EngineClient
    ) -> tuple[EpisodeRecord, set[int]]:
        sampler = VerlSampler(
            generate=engines.generate,
            sampling=self.config.sampling,
            stop_ids=self.stop_ids,
            request_id=f"{trial.key}#{attempt}",
            deadline_seconds=self.config.episode.turn_seconds,
        )
        policy = TokenPolicy(
            renderer=self.renderer,
            interpreter=self.interpreter,
            sampler=sampler,
            fingerprint=trial.policy,
            max_model_len=self.config.policy.max_model_len,
            max_tokens_per_turn=self.config.sampling.max_tokens_per_turn,
        )
        runner = self.environment.runner(policy, keep_tokens=True)
        try:
            record = await runner.run(self.tasks[order.uid], trial, seed, attempt=attempt)
        finally:
            engines.forget(sampler.request_id)
        if record.outcome is not Outcome.VOID and 1 not in record.tokens.get("mask", []):
            record.outcome, record.reward = Outcome.VOID, float("nan")
            record.fault_kind, record.fault_cause = "render", "the prompt left no room for a single sampled token"
        record = await store_record(record, lambda found: self.journal.append(found.to_json()))
        self.attempts += 1
        return record, sampler.versions


def _trained(record: EpisodeRecord, versions: set[int], voids: tuple[str, ...]) -> TrainedEpisode:
    ids, mask, logprobs = (record.tokens[name] for name in ("ids", "mask", "logprobs"))
    start = int(record.tokens["prompt_length"][0])
    # What came after the last sampled token (a tool result that nobody read) has no gradient and costs a forward pass.
    end = len(mask) - mask[::-1].index(1)
    return TrainedEpisode(
        prompt_ids=ids[:start],
        response_ids=ids[start:end],
        response_mask=mask[start:end],
        response_logprobs=logprobs[start:end],
        reward=record.reward,
        versions=(min(versions), max(versions)) if versions else (0, 0),
        report=_report(record, voids),
    )


def _report(record: EpisodeRecord, voids: tuple[str, ...]) -> SessionReport:
    mask: list[int] = record.tokens.get("mask", [])
    start = int(record.tokens["prompt_length"][0]) if record.tokens else 0
    return SessionReport(
        outcome=record.outcome,
        reward=record.reward,
        start=record.initial_state_hash,
        voids=voids,
        fault_cause=record.fault_cause,
        finish=record.finish,
        turns=record.turns,
        prompt_tokens=start,
        response_tokens=len(mask) - start,
        sampled_tokens=sum(mask),
        seconds=record.seconds,
    )


def describe_plan(config: dict[str, Any], run_dir: Path, model: Path, policy: str, settings: str) -> dict[str, Any]:
    """What `EpisodeService.open` reads."""
    return {"config": config, "run_dir": str(run_dir), "model": str(model), "policy": policy, "settings": settings}
