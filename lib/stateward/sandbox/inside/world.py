"""The inside of one world: a forked process that answers tool calls until its socket closes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import traceback
from types import ModuleType
from typing import Any, NoReturn

from stateward.sandbox.inside import bounds, crossing, wire
from stateward.sandbox.inside.session import Session, SessionError

#: Seconds that a teardown may take once nobody waits for it any more.
TEARDOWN_SECONDS = 5.0
_MESSAGE_LIMIT = 1 << 28
_LOG_BYTES = 1 << 20
#: A world that is open yields to those that are being opened, so that opening stays quick when every core is busy.
_NICENESS = 10


def run(module: ModuleType, server: Any, message: dict[str, Any], fds: list[int]) -> NoReturn:
    """Called right after the fork. `message` holds the limits.

    Where the world is initialised here (`graceful`), its end runs the teardown, if any, and the server's lifespan.
    """
    sock = socket.socket(fileno=fds[0])
    try:
        crossing.reseed()
        crossing.run_hook(module, crossing.AFTER_FORK)
        limits = message["limits"]
        bounds.limit_resources(limits["memory_mb"], limits["cpu_seconds"], limits["file_mb"])
        # Last, so that everything before may still use what it needs.
        if not getattr(module, crossing.PROCESSES, False):
            bounds.refuse_processes()
    except Exception:  # noqa: BLE001 - the hook is the server's; its error is the cause that the client reports
        wire.put(sock, {"ready": False, "cause": traceback.format_exc(limit=-3)})
        os._exit(1)
    asyncio.run(_serve(server, sock, message["graceful"], message["teardown"], limits["output_bytes"]))
    os._exit(0)


async def _serve(
    server: Any, sock: socket.socket, graceful: bool, teardown: dict[str, Any] | None, output_bytes: int
) -> None:
    inbox: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()

    def readable() -> None:
        received = wire.receive(sock, _MESSAGE_LIMIT)
        if received is None:
            if not graceful:
                os._exit(0)
            loop.remove_reader(sock)
        inbox.put_nowait(received[0] if received else None)

    async with Session(server) as session:
        loop = asyncio.get_running_loop()
        loop.add_reader(sock, readable)
        if graceful:
            loop.add_signal_handler(signal.SIGTERM, inbox.put_nowait, None)
        wire.put(sock, {"ready": True, "pid": os.getpid()})
        os.nice(_NICENESS)
        while (message := await inbox.get()) is not None:
            _trim_log()
            reply: dict[str, Any] = {"seq": message["seq"]}
            try:
                text, is_error = await session.call(message["tool"], message["arguments"])
            except SessionError as error:
                reply["fault"] = str(error)
            else:
                limit = message.get("limit", output_bytes)
                size = len(text) if text.isascii() else len(text.encode(errors="surrogatepass"))
                if size > limit:
                    text = f"The tool's output of {size} bytes is over the limit of {limit}. Ask for less."
                    is_error = True
                reply |= {"text": text, "is_error": is_error}
            wire.put(sock, reply)
        if teardown is not None:
            await asyncio.wait_for(session.call(teardown["tool"], teardown["arguments"]), TEARDOWN_SECONDS)


def _trim_log() -> None:
    """Forget old output: a world's log is memory, and a chatty server must not fill it over many calls."""
    with contextlib.suppress(OSError):  # a server may have closed its output, or put something else in its place
        if os.fstat(1).st_size > _LOG_BYTES:
            os.ftruncate(1, 0)
            os.lseek(1, 0, os.SEEK_SET)  # standard error shares the offset
