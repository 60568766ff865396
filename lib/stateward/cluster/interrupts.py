"""An order to stop, heard once.

One order may come several times: Ctrl-C reaches a stage, and then the pipeline above it ends the stage too; Slurm
signals every process of a step, and the image's launcher passes on what it gets. What is being closed is not cut short
by that, only by a second Ctrl-C.
"""

from __future__ import annotations

import signal
from collections.abc import Coroutine
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import asyncio

Result = TypeVar("Result")

#: What Slurm ends, it signals process by process: a child of ours may be gone a moment before the order reaches us. An
#: order needs far less; a void is rare enough to wait as long for it.
_ORDER_SECONDS = 1.0

_told = False
_main: asyncio.Task[Any] | None = None


def listen() -> None:
    """From now on SIGTERM, which Slurm sends, is an interrupt as Ctrl-C is: KeyboardInterrupt, or the end of `run`."""
    signal.signal(signal.SIGTERM, hear)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # a shell's background job does not hear it
        signal.signal(signal.SIGINT, hear)


def run(main: Coroutine[Any, Any, Result]) -> Result:
    """`asyncio.run`, whose main task alone is cancelled by an interrupt, so that each task closes what it opened.

    An interrupt that is raised between tasks would have them all cancelled, and those of a group once more by the
    group: while they close.

    Raises:
        KeyboardInterrupt: `main` was cancelled by an interrupt, and has ended.
    """
    import asyncio  # which --help has no need of

    async def supervised() -> Result:
        global _main
        _main = asyncio.current_task()
        try:
            return await main
        finally:
            _main = None

    try:
        return asyncio.run(supervised())
    except asyncio.CancelledError:
        if _told:
            raise KeyboardInterrupt from None
        raise


async def no_order() -> None:
    """Returns once no order to stop can have been the cause of what just failed; otherwise this task is cancelled.

    The order is a signal to every process of a step. A world or a server that it ended is no fault of an episode.
    """
    import asyncio

    await asyncio.sleep(_ORDER_SECONDS)


def hear(number: int, frame: FrameType | None = None) -> None:
    """The handler of `listen`."""
    global _told
    if _told and number == signal.SIGTERM:
        return
    first, _told = not _told, True
    if not first or _main is None or _runs(_main):
        raise KeyboardInterrupt
    _main.cancel()
    _main.get_loop().call_soon_threadsafe(lambda: None)  # which waits for its files


def _runs(task: asyncio.Task[Any]) -> bool:
    """Whether the task's own code was interrupted: it may be waiting without its loop, as for an engine to start."""
    import asyncio

    return asyncio.current_task(task.get_loop()) is task
