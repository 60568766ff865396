"""The scripted engine as a rollout of Verl's, under the name ``scripted``, through Verl's own registries.

Loaded by every process that imports Verl (``VERL_USE_EXTERNAL_MODULES``).
"""

from __future__ import annotations

from typing import Any

import ray
from verl.workers.rollout.base import _ROLLOUT_REGISTRY, BaseRollout
from verl.workers.rollout.replica import RolloutReplica, RolloutReplicaRegistry


class ScriptedRollout(BaseRollout):  # type: ignore[misc]
    """The trainer process's side: it hands every weight out, as it would to an engine, and lets it go."""

    async def resume(self, tags: list[str]) -> None:
        return None

    async def release(self) -> None:
        return None

    async def update_weights(self, weights: Any, wire_format: str = "named_tensors", **_: Any) -> None:
        assert sum(tensor.numel() for _, tensor in weights) > 0


class ScriptedReplica(RolloutReplica):  # type: ignore[misc]
    """The driver's side: one process."""

    async def launch_servers(self) -> None:
        from scripted_engine import ScriptedServer

        server = ray.remote(ScriptedServer).options(name=f"scripted_engine_{self.replica_rank}").remote()
        await server.wake_up.remote()
        self.servers = [server]
        self._server_handle, self._server_address = server, "scripted"


_ROLLOUT_REGISTRY["scripted", "async"] = f"{__name__}.ScriptedRollout"
RolloutReplicaRegistry.register("scripted", lambda: ScriptedReplica)
