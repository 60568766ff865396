"""The client's handle of a snapshot: a server initialised with one state, whose forks are worlds."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

from stateward.errors import SystemFault
from stateward.sandbox import reserved
from stateward.sandbox.forked import ForkedServer
from stateward.sandbox.inside import wire
from stateward.sandbox.parent_handle import CLOSE_GRACE_SECONDS, REPORT_SECONDS, ParentHandle, describe_exit
from stateward.sandbox.spares import Spares
from stateward.sandbox.warm import WarmParent


class Snapshot(ParentHandle):
    """A server initialised with one state. Make one with `start`."""

    def __init__(self, warm: WarmParent, config: dict[str, Any]) -> None:
        ours, theirs = wire.pair()
        super().__init__(ours)
        self.warm, self.config = warm, config
        self.name, self.in_child = warm.spec.name, warm.in_child
        self.init_result: dict[str, Any] = {}
        self.initial_state: dict[str, Any] = {}
        self._child_name = warm.new_name("s")
        self._spares = Spares(lambda: ForkedServer.start(self, str(uuid.uuid4())))
        with theirs:
            self._exited = warm.start_child(self._child_name, {}, theirs.fileno())
        self._init = reserved.call_of(warm.tools, reserved.INIT, {"config": config}, self._child_name)
        teardown = reserved.call_of(warm.tools, reserved.TEARDOWN, {}, self._child_name)
        self._link.send({"init": self._init, "teardown": teardown, "in_child": bool(self.in_child)})

    @classmethod
    async def start(cls, warm: WarmParent, config: dict[str, Any]) -> Snapshot:
        """Initialise the server with `config`, or make ready to do so in every world if this server needs that.

        Raises:
            SystemFault: "init" if init raised or answered anything but ok, or took too long.
        """
        snapshot = await cls._attempt(warm, config)
        if snapshot is None:  # something must not cross the fork; `_attempt` has set `warm.in_child`
            snapshot = await cls._attempt(warm, config)
            assert snapshot is not None
        return snapshot

    @classmethod
    async def _attempt(cls, warm: WarmParent, config: dict[str, Any]) -> Snapshot | None:
        self, limits, spec = cls(warm, config), warm.limits, warm.spec
        try:
            async with asyncio.timeout(limits.start_deadline_seconds):
                answer = await self.answer
            if not answer["ready"] and answer.get("obstacles") and not self.in_child:
                warm.in_child = "after init there are " + " and ".join(answer["obstacles"])
                await self.close()
                return None
            if not answer["ready"]:
                raise SystemFault("init", f"server {spec.name!r}: {await self._cause(answer)}")
            if self._init is not None and not self.in_child:
                self.init_result = reserved.parse_init(spec.name, answer["init"])
            if not self.in_child:
                # In a fork of its own, so that a state tool with side effects leaves the snapshot as it was.
                async with asyncio.timeout(limits.start_deadline_seconds):
                    probe = await ForkedServer.start(self, self._child_name)
                self.initial_state = probe.initial_state
                await probe.close()
        except TimeoutError:
            warm.kill_child(self._child_name)
            await self.close()
            raise SystemFault(
                "init", f"server {spec.name!r}: init took longer than {limits.start_deadline_seconds:g} s"
            ) from None
        except BaseException:
            warm.kill_child(self._child_name)
            await self.close()
            raise
        return self

    async def world(self, session_id: str) -> ForkedServer:
        """A world of this snapshot; raises SystemFault as `ForkedServer.start` does."""
        if self.in_child:  # its init may make things outside the process, which a spare world would make for nobody
            return await ForkedServer.start(self, session_id)
        return await self._spares.take()

    @property
    def worlds(self) -> int:
        """Worlds in use."""
        return self.children - self._spares.count

    async def _cause(self, answer: dict[str, Any]) -> str:
        if "obstacles" in answer:
            return "it cannot be forked: " + " and ".join(answer["obstacles"])
        if self.gone.done():  # it died instead of answering; its parent knows how
            async with asyncio.timeout(REPORT_SECONDS):
                return describe_exit(await asyncio.shield(self._exited))
        return str(answer["cause"]).strip()

    async def close(self) -> None:
        """End the snapshot and its worlds, with its teardown."""
        await self._spares.aclose()
        self._link.close()
        self._ended("it was closed")
        try:
            async with asyncio.timeout(CLOSE_GRACE_SECONDS):
                await asyncio.shield(self._exited)
        except TimeoutError:
            self.warm.kill_child(self._child_name)
            await asyncio.shield(self._exited)
