"""The driver of `bench step`: whole training steps on episodes of Verl's single-turn loop and of ours, in turn.

One trainer trains all of them. Every episode has the same number of sampled tokens and a prompt of the same length, and
every step trains on the same number of groups and replaces the same number: rewards are given by the position of the
episode, so that neither loop's luck decides how long a step takes. Ours still reads the state and grades it.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import ray

from stateward.errors import SystemFault
from stateward.outcome import Outcome
from stateward.store.stage import write_json
from stateward.training.bench_loops import ASKED, FixedLength, LoopHost, conversation, loop_of, passes
from stateward.training.driver import connected, main, opened
from stateward.training.groups import GroupReport, SessionReport
from stateward.training.host import start_hosts
from stateward.training.manager import EpisodeWorker, GroupOrder, VerlWorker


class _Ours(EpisodeWorker):
    """Our worker with given rewards."""

    replaced = 0

    async def _session(self, order: GroupOrder, number: int) -> tuple[SessionReport, Any]:
        passed = passes(order.key, number, self.replaced)
        report, output = await super()._session(order, number)
        if output is None:
            raise SystemFault("bug", f"an episode of {order.uid} is void: {report.fault_cause}")
        output.reward_score = float(passed)
        return replace(report, outcome=Outcome.PASS if passed else Outcome.FAIL, reward=float(passed)), output


class _Verls(VerlWorker):  # type: ignore[misc]
    """Verl's worker with given rewards, which cost it nothing."""

    replaced = 0

    async def _agent_loop_postprocess(self, output: Any, validate: bool, **kwargs: Any) -> SessionReport:
        passed = passes(kwargs["uid"], kwargs["session_id"], self.replaced)
        output.reward_score = float(passed)
        step = kwargs[
            "global_steps"
        ]  # which weights sampled: the client of the engines that Verl has says so, ours not
        output.extra_fields |= {"reward_extra_info": {}, "min_global_steps": step, "max_global_steps": step}
        await super()._agent_loop_postprocess(output, validate, **kwargs)
        return SessionReport(
            outcome=Outcome.PASS if passed else Outcome.FAIL,
            reward=float(passed),
            finish="done",
            turns=1,
            prompt_tokens=len(output.prompt_ids),
            response_tokens=len(output.response_ids),
            sampled_tokens=len(output.response_ids),
        )


class StepHost(LoopHost):
    """A host of both loops; the step says which."""

    def start(self, config: Any, engines: Any, *rest: Any) -> None:
        super().start(config, engines, *rest)
        self.conversations: dict[str, list[dict[str, str]]] = {}
        self.lengths: dict[str, int] = {}

    def workers(self) -> tuple[Any, Any]:
        return _Ours, _Verls

    def arrange(self, tokens: list[int], steps: int, replaced: int) -> None:
        """`steps` steps of each length in `tokens`, one after the other; `replaced` groups a step carry no signal."""
        self.tokens, self.steps = tokens, steps
        self.worker.replaced = self.plain.replaced = replaced

    async def run_group(self, order: GroupOrder) -> GroupReport:
        self.engines.tokens = self.tokens[(order.step - 1) // self.steps]
        if loop_of(order.step) == "ours":
            report = await super().run_group(order)
            self.lengths[order.uid] = report.sessions[0].prompt_tokens
            return report
        sessions = await asyncio.gather(*(self._plain_session(order, number) for number in range(order.size)))
        return GroupReport(key=order.key, uid=order.uid, sessions=tuple(sessions))

    async def _plain_session(self, order: GroupOrder, number: int) -> SessionReport:
        if order.uid not in self.conversations:
            self.conversations[order.uid], _ = conversation(self.plain.tokenizer, self.lengths[order.uid])
        report: SessionReport = await self.run_verls(order.key, number, order.step, self.conversations[order.uid])
        return report


def measure(spec: dict[str, Any]) -> None:
    asked = json.loads(Path(os.environ[ASKED]).read_text())
    with ExitStack() as stack:
        stack.enter_context(connected(spec))
        hosts = start_hosts(spec["agent_workers"], StepHost)
        trainer, manager = stack.enter_context(opened(spec, hosts, FixedLength))
        ray.get([host.arrange.remote(asked["tokens"], asked["steps"], asked["replaced"]) for host in hosts])
        trainer.fit(manager)
    write_json(Path(asked["result"]), {})


if __name__ == "__main__":
    # By its full name: what is sent to Ray's processes must be found there again.
    from stateward.training.bench_steps import measure as named

    sys.exit(main(sys.argv[1], named))
