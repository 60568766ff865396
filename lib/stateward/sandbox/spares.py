"""Worlds forked ahead of their use, while a snapshot's worlds are asked for steadily.

On busy cores a fork waits for its turn, and an episode should not. A burst (the group of one training step) gets none:
it is over before a spare is ready. Only asking that goes on for seconds is taken as a promise of more.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

from stateward.errors import SystemFault
from stateward.sandbox.forked import ForkedServer

_WINDOW_SECONDS = 5.0  # how far back the asking is looked at
_BURST_SECONDS = 1.0  # asking no older than this may be a burst
_LEAST = 2  # worlds asked for before that, within the window
_LEAD_SECONDS = 0.25  # a fork on a busy machine takes up to this long
_MOST = 16
_KEEP_SECONDS = 10.0  # unused spares go after this


class Spares:
    """The spare worlds of one snapshot, made by `start`."""

    def __init__(self, start: Callable[[], Coroutine[Any, Any, ForkedServer]]) -> None:
        self._start = start
        self._spares: deque[asyncio.Task[ForkedServer]] = deque()  # ready or nearly so, the oldest first
        self._asked: deque[float] = deque()
        self._closing: set[asyncio.Task[None]] = set()
        self._expiry: asyncio.TimerHandle | None = None

    @property
    def count(self) -> int:
        return len(self._spares) + len(self._closing)

    async def take(self) -> ForkedServer:
        """A spare, if there is one, or a new fork; more are made if the asking is steady.

        Raises:
            SystemFault: as `start` does.
        """
        now = time.monotonic()
        self._asked.append(now)
        first = self._spares.popleft() if self._spares else None
        for _ in range(self._wanted(now) - len(self._spares)):
            self._make()
        if first is not None:
            try:
                spare = await first
            except SystemFault:
                pass  # it failed for nobody; whoever asks for himself gets the cause
            except asyncio.CancelledError:
                self._close(first)
                raise
            else:
                if not spare.over:
                    return spare
                self._close(first)
        return await self._start()

    async def aclose(self) -> None:
        """End every spare."""
        if self._expiry is not None:
            self._expiry.cancel()
        self._asked.clear()
        self._let_go()
        if self._closing:
            await asyncio.wait(self._closing)

    def _wanted(self, now: float) -> int:
        while self._asked and self._asked[0] < now - _WINDOW_SECONDS:
            self._asked.popleft()
        steady = sum(asked < now - _BURST_SECONDS for asked in self._asked)
        if steady < _LEAST:
            return 0
        rate = steady / (_WINDOW_SECONDS - _BURST_SECONDS)
        return min(_MOST, math.ceil(rate * _LEAD_SECONDS))

    def _make(self) -> None:
        task = asyncio.create_task(self._start())
        task.add_done_callback(lambda t: None if t.cancelled() else t.exception())
        self._spares.append(task)
        if self._expiry is None:
            self._expiry = asyncio.get_running_loop().call_later(_KEEP_SECONDS, self._expire)

    def _expire(self) -> None:
        """Let the spares go if nobody asked lately; look again later if there are any."""
        self._expiry = None
        if self._asked[-1] < time.monotonic() - _KEEP_SECONDS:
            self._let_go()
        if self._spares:
            self._expiry = asyncio.get_running_loop().call_later(_KEEP_SECONDS, self._expire)

    def _let_go(self) -> None:
        while self._spares:
            self._close(self._spares.popleft())

    def _close(self, spare: asyncio.Task[ForkedServer]) -> None:
        async def close() -> None:
            spare.cancel()  # no effect on one that is ready
            await asyncio.wait([spare])
            if not spare.cancelled() and spare.exception() is None:
                await spare.result().close()

        task = asyncio.create_task(close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
