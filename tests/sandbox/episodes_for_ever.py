"""A client that is to be killed: opens worlds, prints what it holds, and waits for its standard input to close."""

import asyncio
import json
import signal
import sys

from stateward.sandbox import Sandbox
from stateward.tasks.task import Check, ServerSpec, Task


async def main(server: str, trace: str) -> None:
    forked = ServerSpec(name="forked", command=(sys.executable, server), env={"TRACE": trace})
    # Its init opens what must not cross a fork, so it runs in every world, and so does its teardown.
    own = ServerSpec(name="own", command=(sys.executable, server, "init", "socket"), env={"TRACE": trace})
    plain = ServerSpec(name="plain", command=(sys.executable, server), env={"TRACE": trace}, fork=False)
    check = Check(file="", function="", source="")
    async with Sandbox() as sandbox:
        worlds = []
        for spec in (forked, forked, own, plain):
            task = Task(
                uid=spec.name, domain="", system="", query="", check=check, world={spec.name: {}}, servers=(spec,)
            )
            worlds.append(await sandbox.open(task))
        busy = asyncio.create_task(worlds[0].call("hang", {}, call_id="1", deadline=3600))
        print(json.dumps({"folder": str(sandbox.folder)}), flush=True)
        closed = asyncio.Event()
        asyncio.get_running_loop().add_reader(sys.stdin, closed.set)
        await closed.wait()
        busy.cancel()


# A test that runs in the background of a shell inherits that interrupts are ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
asyncio.run(main(*sys.argv[1:]))
