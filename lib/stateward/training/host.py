"""The actor that runs episodes, as a shell that needs nothing until it is told what to load.

Ray starts it before the driver has imported Verl, so that both import at the same time; on two cores this hides ten
seconds of every start.
"""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import ray

from stateward.training import stacks, verl_hooks
from stateward.training.devices import IdleMeter
from stateward.training.groups import GroupReport


class EpisodeHost:
    """One process of episodes; `worker` is a `manager.EpisodeWorker` once `start` was called."""

    def __init__(self) -> None:
        self.meter = IdleMeter()

    def load(self) -> None:
        """Import what `start` needs."""
        import stateward.training.manager as _loads  # noqa: F401

    def start(self, *arguments: Any) -> None:
        """Build the worker; the arguments are those of Verl's ``AgentLoopWorker``."""
        from stateward.training.manager import EpisodeWorker

        self.worker = EpisodeWorker(*arguments)

    async def run_group(self, order: Any) -> GroupReport:
        report: GroupReport = await self.worker.run_group(order)
        return report

    async def close(self) -> None:
        await self.worker.close()

    def hook_report(self) -> str:
        """See `verl_hooks.report`."""
        return verl_hooks.report()

    def finished_attempts(self) -> int:
        """How many attempts at episodes this process has finished."""
        from stateward.training.agent_loop import finished_attempts

        return finished_attempts()

    def idle(self) -> tuple[str, int, int]:
        """This node, and idle and all samples of its devices since the last call."""
        return (ray.util.get_node_ip_address(), *self.meter.take())

    def request_stacks(self, folder: str) -> tuple[str, list[int]]:
        """Let the processes of the run on this node write their stacks; the node, and their ids."""
        return socket.gethostname(), stacks.request(Path(folder))


def start_hosts(number: int, kind: type[EpisodeHost] = EpisodeHost) -> list[Any]:
    """`number` actors of `kind`, spread over the nodes that have devices: worlds live beside their engines."""
    nodes = [n["NodeID"] for n in ray.nodes() if n["Alive"] and n["Resources"].get("GPU", 0) > 0]
    if not nodes:
        raise RuntimeError("no node of this Ray has a device slot")
    placed = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
    hosts = [
        ray.remote(kind)
        .options(name=f"episodes_{i}", scheduling_strategy=placed(node_id=nodes[i % len(nodes)], soft=False))
        .remote()
        for i in range(number)
    ]
    for host in hosts:
        host.load.remote()
    return hosts
