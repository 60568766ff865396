"""The warm parent: a freshly executed process that imports a server's module once. Its forks are snapshots.

Started as ``python -c '...; from stateward.sandbox.inside.parent import main; main(FD)'`` by the server's own
interpreter. The first message is ``{"kind", "name", "argv", "scratch", "own_folder"}``; the
answer ``{"ready": true, "tools": [...],
"in_child": reason or ""}`` or ``{"ready": false}`` with ``not_forkable`` or ``cause``.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import gc
import glob
import inspect
import logging
import os
import shutil
import signal
import socket
import traceback
from types import ModuleType
from typing import Any, NoReturn

from stateward.sandbox.inside import crossing, snapshot, wire, workdir
from stateward.sandbox.inside.children import Children
from stateward.sandbox.inside.locate import NotForkable, find_server, has_own_lifespan, load
from stateward.sandbox.inside.session import Session

_MESSAGE_LIMIT = 1 << 20
#: Seconds that snapshots may take to end; a little over what one allows its worlds.
_GRACE = 7.0


def main(control_fd: int) -> NoReturn:
    control = socket.socket(fileno=control_fd)
    control.set_inheritable(False)
    received = wire.receive(control, _MESSAGE_LIMIT)
    if received is None:
        os._exit(0)
    order, began, client = received[0], os.getcwd(), os.getppid()
    try:
        module = load(order["kind"], order["name"], order["argv"])
        server = find_server(module)
        # Nobody reads the logs of a world, and rendering a line of one costs as much as a call.
        logging.disable(logging.INFO)
        tools = asyncio.run(_warm_up(server))
        _log_plainly()
        if obstacles := crossing.obstacles(module, [control.fileno()]):
            raise NotForkable("after the import there are " + " and ".join(obstacles))
    except NotForkable as error:
        wire.put(control, {"ready": False, "not_forkable": str(error)})
        os._exit(0)
    except BaseException:  # noqa: BLE001 - a module may raise anything, SystemExit included; it is the client's cause
        wire.put(control, {"ready": False, "cause": traceback.format_exc(limit=-4)})
        os._exit(1)
    gc.collect()
    gc.freeze()
    wire.put(control, {"ready": True, "tools": tools, "in_child": _why_in_child(module, server), "pid": os.getpid()})

    def child(_message: dict[str, Any], fds: list[int], scratch: str) -> NoReturn:
        workdir.enter(scratch, shared=True, filled=order["own_folder"] or os.getcwd() != began)
        snapshot.run(module, server, fds, scratch)

    Children(control, order["scratch"], child, farewell=signal.SIGTERM, grace=_GRACE).run()
    # The client does this too; it may have been killed.
    shutil.rmtree(order["scratch"], ignore_errors=True)
    folder = os.path.dirname(order["scratch"])
    if os.getppid() != client:  # it was killed, and cannot remove the folders of servers that are processes of its own
        for left in glob.glob(os.path.join(glob.escape(folder), "process-*")):
            shutil.rmtree(left, ignore_errors=True)
    with contextlib.suppress(OSError):  # another server's folder is still in it, or the client was quicker
        os.rmdir(folder)
    os._exit(0)


def _log_plainly() -> None:
    """Replace handlers that draw: both SDKs log a tool's exception with a coloured traceback, a quarter of a second."""
    loggers = [entry for entry in logging.root.manager.loggerDict.values() if isinstance(entry, logging.Logger)]
    for logger in [logging.root, *loggers]:
        for handler in list(logger.handlers):
            if any(kind.__module__.startswith("rich.") for kind in type(handler).__mro__):
                plain = logging.StreamHandler()
                plain.setLevel(handler.level)
                plain.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
                logger.removeHandler(handler)
                logger.addHandler(plain)


async def _warm_up(server: Any) -> list[dict[str, Any]]:
    """List the tools in a session: what the SDK builds and imports at first use is then shared by every fork."""
    async with Session(server) as session:
        return await session.list_tools()


def _why_in_child(module: ModuleType, server: Any) -> str:
    if getattr(module, crossing.INIT_IN_CHILD, False):
        return f"the module sets {crossing.INIT_IN_CHILD}"
    if has_own_lifespan(server):
        return "the server has a lifespan of its own"
    if _init_wants_context(module):
        return "its init asks for the session's Context"
    return ""


def _init_wants_context(module: ModuleType) -> bool:
    """Whether the function registered as ``__reserved__init`` has a parameter annotated with the SDKs' Context.

    Read from the source: each SDK version keeps the registered function somewhere else.
    """
    try:
        tree = ast.parse(inspect.getsource(module))
    except (OSError, TypeError, SyntaxError):
        return False
    for node in ast.walk(tree):
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        names = [node.name, *(ast.unparse(decorator) for decorator in node.decorator_list)]
        if not any("__reserved__init" in name for name in names):
            continue
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        return any(a.annotation is not None and "Context" in ast.unparse(a.annotation) for a in arguments)
    return False
