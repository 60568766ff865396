"""A server initialised with one initial state, whose forks are worlds."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import traceback
from types import ModuleType
from typing import Any, NoReturn

from stateward.sandbox.inside import crossing, wire, workdir, world
from stateward.sandbox.inside.children import Children
from stateward.sandbox.inside.session import Session, SessionError

_MESSAGE_LIMIT = 1 << 30
#: Objects that a world makes before the collector looks for cycles among them: about 5 MB.
_COLLECT_AT = 50_000


def run(module: ModuleType, server: Any, fds: list[int], scratch: str) -> NoReturn:
    """Called right after the fork from the warm parent. The first message on the socket says what to initialise:

    ``{"init": call or null, "teardown": call or null, "in_child": bool}`` where a call is ``{"tool", "arguments"}``.
    The answer is one of ``{"ready": true, "init": text}``, ``{"ready": false, "obstacles": [...]}`` (open it again with
    `in_child`) and ``{"ready": false, "cause": text}``.
    """
    control = socket.socket(fileno=fds[0])
    received = wire.receive(control, _MESSAGE_LIMIT)
    if received is None:
        os._exit(0)
    order = received[0]
    crossing.reseed()
    answer = _initialise(module, server, order, control)
    wire.put(control, answer)
    if not answer["ready"]:
        os._exit(0)
    gc.collect()
    gc.freeze()  # the collector would touch, and so copy, every page that the worlds share
    gc.set_threshold(_COLLECT_AT)  # and looks at what a world made; few worlds live long enough to need it

    def child(message: dict[str, Any], child_fds: list[int], child_scratch: str) -> NoReturn:
        # Init may have gone elsewhere, to a folder that is not this process's own.
        private = os.getcwd().startswith(scratch + os.sep)
        workdir.enter(child_scratch, shared=not private)
        world.run(module, server, message, child_fds)

    if order["in_child"]:  # each world has a teardown of its own, and time for it
        Children(control, scratch, child, farewell=signal.SIGTERM, grace=world.TEARDOWN_SECONDS + 1).run()
    else:
        Children(control, scratch, child, farewell=signal.SIGKILL, grace=2.0).run()
        _tear_down(server, order["teardown"])
    os._exit(0)


def _initialise(module: ModuleType, server: Any, order: dict[str, Any], control: socket.socket) -> dict[str, Any]:
    text, is_error = "", False
    try:
        if order["init"] is not None and not order["in_child"]:
            text, is_error = asyncio.run(_call(server, order["init"]))
        crossing.run_hook(module, crossing.BEFORE_FORK)
    except SessionError as error:
        return {"ready": False, "cause": str(error)}
    except Exception:  # noqa: BLE001 - the hook is the server's; its error is the cause that the client reports
        return {"ready": False, "cause": traceback.format_exc(limit=-3)}
    if is_error:
        return {"ready": False, "cause": text}
    obstacles = crossing.obstacles(module, [control.fileno()])
    if obstacles:
        if not order["in_child"]:
            _tear_down(server, order["teardown"])
        return {"ready": False, "obstacles": obstacles}
    return {"ready": True, "init": text}


def _tear_down(server: Any, call: dict[str, Any] | None) -> None:
    if call is None:
        return
    try:
        asyncio.run(asyncio.wait_for(_call(server, call), world.TEARDOWN_SECONDS))
    except Exception:  # noqa: BLE001 - nobody waits for it; the log of this process keeps it
        traceback.print_exc()


async def _call(server: Any, call: dict[str, Any]) -> tuple[str, bool]:
    async with Session(server) as session:
        return await session.call(call["tool"], call["arguments"])
