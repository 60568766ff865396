"""One fsync for all rows that came while the last one was under way."""

from __future__ import annotations

import asyncio
from typing import Any

from stateward.store.journal import Journal, encode_line


class GroupCommit:
    """Appends to a journal from many tasks of one event loop, outside it.

    Episodes that end together would otherwise queue for the disk one by one, each for the milliseconds of a flush.
    """

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self._waiting: list[tuple[bytes, asyncio.Future[None]]] = []
        self._writer: asyncio.Task[None] | None = None

    async def append(self, row: dict[str, Any]) -> None:
        """As `Journal.append`: when this returns, the row is durable. Raises what it raises."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((encode_line(row), done))
        if self._writer is None:
            self._writer = asyncio.create_task(self._write())
        await done

    async def _write(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting, []
                try:
                    await asyncio.to_thread(self.journal.append_lines, [line for line, _ in batch])
                except Exception as error:  # noqa: BLE001 - every one who waits is told
                    for _, done in batch:
                        if not done.done():
                            done.set_exception(error)
                else:
                    for _, done in batch:
                        if not done.done():
                            done.set_result(None)
        finally:
            self._writer = None
