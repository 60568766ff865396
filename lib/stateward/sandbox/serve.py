"""Worlds over HTTP, as an OpenEnv environment server, for a trainer that is not ours.

    python -m stateward.sandbox.serve TASKS [--dataset DIR] [--host 127.0.0.1] [--port 8000] [--max-worlds 64]

TASKS is a list of ``file.py:test_name``. Each WebSocket session has a world of its own. Needs the package ``openenv``.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import importlib.util
import signal
import socket
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from stateward.errors import StatewardError, UserError
from stateward.sandbox import Sandbox, SandboxLimits
from stateward.tasks import Task, load_tasks


async def serve(tasks: Sequence[Task], host: str, port: int, max_worlds: int) -> None:
    """Serve until SIGTERM or SIGINT; every world is gone on return.

    Raises:
        UserError: `openenv` is not installed, or the port is taken.
    """
    if importlib.util.find_spec("openenv") is None:
        raise UserError(
            "the package openenv is not installed", "the gateway speaks its protocol", "pip install openenv"
        )
    import uvicorn
    from openenv.core.env_server.http_server import create_fastapi_app
    from openenv.core.env_server.types import ConcurrencyConfig

    from stateward.grading import Grader
    from stateward.sandbox.openenv_environment import WorldAction, WorldEnvironment, WorldObservation, WorldState

    try:
        listening = socket.create_server((host, port))
    except OSError as error:
        raise UserError(
            f"cannot listen on {host}:{port}: {error}", "", "use another --port; 0 takes a free one"
        ) from error
    with listening:
        limits = SandboxLimits(max_worlds=max_worlds)
        async with Sandbox(limits) as sandbox, Grader() as grader:
            loop = asyncio.get_running_loop()
            app = create_fastapi_app(
                # A partial of the class, which the server looks into; of another callable it would make one to see.
                functools.partial(WorldEnvironment, tasks, sandbox, grader, loop),
                WorldAction,
                WorldObservation,
                # An idle session goes with its world, or it would keep its place for nothing.
                concurrency_config=ConcurrencyConfig(
                    max_concurrent_envs=max_worlds, session_timeout=limits.idle_seconds
                ),
                env_name="stateward",
                state_cls=WorldState,
            )

            class Server(uvicorn.Server):
                @contextlib.contextmanager
                def capture_signals(self) -> Iterator[None]:
                    """Not the parent's, which raises the signal again at its end, before the worlds are gone."""
                    for number in (signal.SIGTERM, signal.SIGINT):
                        loop.add_signal_handler(number, self.handle_exit, number, None)
                    yield

            server = Server(uvicorn.Config(app, log_level="warning", ws_max_size=1 << 27))
            print(f"{len(tasks)} tasks on http://{host}:{listening.getsockname()[1]}", flush=True)
            await server.serve(sockets=[listening])


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m stateward.sandbox.serve", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("tasks", type=Path, metavar="TASKS", help="a YAML list of file.py:test_name")
    parser.add_argument("--dataset", type=Path, metavar="DIR", help="the dataset's folder (default: that of TASKS)")
    parser.add_argument("--agent", default="default", metavar="NAME", help="agent/NAME.yaml")
    parser.add_argument(
        "--host", default="127.0.0.1", help="anyone who reaches the port can use it, so loopback is the default"
    )
    parser.add_argument("--port", type=int, default=8000, help="0: a free one, which is printed")
    parser.add_argument("--max-worlds", type=int, default=64, metavar="N")
    args = parser.parse_args(argv)
    try:
        tasks = load_tasks(args.dataset or args.tasks.parent, args.tasks, agent=args.agent)
        asyncio.run(serve(tasks, args.host, args.port, args.max_worlds))
    except StatewardError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
