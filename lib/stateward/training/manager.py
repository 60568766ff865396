"""Groups of episodes: the worker that runs them, and the driver's handle on all workers.

Verl's own manager starts episodes and polls a store until enough are there; a worker that died is then waited for
for ever. Here every group is one call with a result: finished groups come back by event, and a dead worker raises.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ray
from verl.experimental.agent_loop.agent_loop import AgentLoopOutput
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopWorkerTQ

from stateward.errors import SystemFault
from stateward.training.agent_loop import close_services
from stateward.training.engines import EngineClient
from stateward.training.groups import GroupReport, SessionReport, trains
from stateward.training.overrides import NAME
from stateward.training.queue import put_group
from stateward.training.rollout import VoidEpisode


@dataclass(frozen=True, kw_only=True)
class GroupOrder:
    """One group to run.

    Attributes:
        key: names it in the transfer queue.
        first_index: trial index of its first episode.
        filtering: see `groups.trains`.
    """

    key: str
    uid: str
    step: int
    size: int
    first_index: int
    filtering: bool


_PING_SECONDS = 5.0
#: The class below Ray's decorator; Verl offers only the decorated one.
VerlWorker: Any = AgentLoopWorkerTQ.__ray_metadata__.modified_class


class EpisodeWorker(VerlWorker):  # type: ignore[misc]
    """Verl's worker (tokenizer, client of the engines, transfer queue) with groups as its unit of work."""

    async def run_group(self, order: GroupOrder) -> GroupReport:
        """Run all episodes of a group at once; if the step trains on it, they are in the transfer queue then."""
        sessions = await asyncio.gather(*(self._session(order, number) for number in range(order.size)))
        reports = tuple(report for report, _ in sessions)
        outputs = [output for _, output in sessions if output is not None]
        if trains([report.outcome for report in reports], order.filtering):
            await put_group(order.key, order.step, outputs)
        return GroupReport(key=order.key, uid=order.uid, sessions=reports)

    async def _session(self, order: GroupOrder, number: int) -> tuple[SessionReport, AgentLoopOutput | None]:
        """One episode; it has no output if it stayed void."""
        trajectory = {"step": order.step, "sample_index": number, "rollout_n": number, "validate": False}
        try:
            output: AgentLoopOutput = await self._run_agent_loop(
                {},  # the sampler of the episode has its own
                trajectory,
                agent_name=NAME,
                trace=False,
                uid=order.key,
                session_id=number,
                global_steps=order.step,
                task=order.uid,
                index=order.first_index + number,
            )
        except VoidEpisode as fault:
            return fault.report, None
        return output.extra_fields.pop("report"), output

    async def _agent_loop_postprocess(self, output: Any, validate: bool, **_: Any) -> Any:
        """Nothing: Verl would put the episode into the transfer queue, which is done for whole groups."""
        return output

    async def close(self) -> None:
        """Stop the worlds of this process."""
        await close_services()


class EpisodeManager:
    """Hands groups to the least busy host and takes them back as they finish.

    Verl's trainer only ever passes it on; the collector is who uses it.

    Args:
        watched: actors that do nothing for the driver while episodes run, trainer processes above all. One that died is
            noticed at once, not at the end of the step's episodes, which may take an hour.
    """

    def __init__(self, hosts: list[Any], config: Any, engines: EngineClient, watched: list[Any]) -> None:
        self.hosts, self._watched = hosts, watched
        self._pings: list[Any] = []
        self._asked: dict[Any, int] = {}  # hosts that were asked how many attempts they have finished
        self._attempts = [0] * len(hosts)
        self._pinged = time.monotonic()
        self._running: dict[Any, tuple[GroupOrder, int]] = {}
        # No teachers, no reward workers.
        ray.get([host.start.remote(config, engines, None, []) for host in hosts])
        wrong = [text for text in ray.get([host.hook_report.remote() for host in hosts]) if text]
        if wrong:
            raise SystemFault("training", "; ".join(wrong))

    def submit(self, order: GroupOrder) -> None:
        """Start a group on the host with the fewest."""
        load = [0] * len(self.hosts)
        for _, host in self._running.values():
            load[host] += 1
        host = load.index(min(load))
        self._running[self.hosts[host].run_group.remote(order)] = (order, host)

    def next_report(self, progress: Callable[[], None]) -> GroupReport:
        """The next group to finish. `progress` is called whenever attempts at episodes were finished meanwhile.

        Raises:
            ray.exceptions.RayError: a host or a watched actor died, or a group raised something that is no fault of an
                episode.
        """
        done: list[Any] = []
        while not done:
            self._ping(progress)
            done, _ = ray.wait(list(self._running), num_returns=1, timeout=_PING_SECONDS)
        self._running.pop(done[0])
        report: GroupReport = ray.get(done[0])
        return report

    def _ping(self, progress: Callable[[], None]) -> None:
        """Ask every watched actor for a sign of life now and then, and every host how many attempts it has finished;
        an answer may take as long as it likes."""
        if time.monotonic() - self._pinged < _PING_SECONDS:
            return
        self._pinged = time.monotonic()
        if self._pings:
            answered, self._pings = ray.wait(self._pings, num_returns=len(self._pings), timeout=0)
            ray.get(answered)
        if not self._pings:
            self._pings = [actor.__ray_ready__.remote() for actor in self._watched]
        answered, _ = ray.wait(list(self._asked), num_returns=len(self._asked), timeout=0) if self._asked else ([], [])
        for ref in answered:
            host, finished = self._asked.pop(ref), ray.get(ref)
            if finished > self._attempts[host]:
                self._attempts[host] = finished
                progress()
        busy = {host for _, host in self._running.values()} - set(self._asked.values())
        self._asked |= {self.hosts[host].finished_attempts.remote(): host for host in busy}

    @property
    def running(self) -> list[GroupOrder]:
        return [order for order, _ in self._running.values()]

    def device_idle_share(self) -> float | None:
        """Of all devices since the last call; None where there are none to be measured."""
        nodes = {node: (idle, total) for node, idle, total in ray.get([host.idle.remote() for host in self.hosts])}
        total = sum(number for _, number in nodes.values())
        return sum(number for number, _ in nodes.values()) / total if total else None

    def close(self) -> None:
        """Stop the worlds. What does not answer is stopped with its process by whoever owns Ray."""
        closing = [host.close.remote() for host in self.hosts]
        ray.wait(closing, num_returns=len(closing), timeout=30)
