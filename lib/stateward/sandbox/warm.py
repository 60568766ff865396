"""The client's handle of a warm parent: the process that has imported a server's module."""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from stateward.errors import SystemFault
from stateward.sandbox import reserved
from stateward.sandbox.inside import wire
from stateward.sandbox.inside.children import tail
from stateward.sandbox.inside.locate import NotForkable, Target
from stateward.sandbox.limits import SandboxLimits
from stateward.sandbox.parent_handle import CLOSE_GRACE_SECONDS, ParentHandle
from stateward.sandbox.toolset import described
from stateward.tasks.task import ServerSpec

#: Folder that holds the `stateward` package, for a server's interpreter that does not have it installed.
LIBRARY = str(Path(__file__).parents[2])
_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL", re.IGNORECASE)


def server_environment(spec: ServerSpec) -> dict[str, str]:
    """The environment of a server's processes: ours without secrets, single-threaded numerics, and the spec's own."""
    env = {k: v for k, v in os.environ.items() if k.startswith("TYPESENSE_") or not _SECRET.search(k)}
    env |= {
        "FASTMCP_LOG_LEVEL": "ERROR",  # a rejected argument otherwise costs a rendered warning
        "PYTHONUNBUFFERED": "1",  # what a dying server printed last is the cause that gets recorded
        # Else a list made of a set has another order in every job, and one initial state several hashes.
        "PYTHONHASHSEED": "0",
        # A numeric library that starts its threads at import could not be forked.
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
    }
    return env | spec.env


class WarmParent(ParentHandle):
    """A process that has imported a server's module. Make one with `start`."""

    def __init__(self, spec: ServerSpec, target: Target, limits: SandboxLimits, scratch: Path) -> None:
        ours, theirs = wire.pair()
        code = (
            f"import sys; sys.path.append({LIBRARY!r}); "
            f"from stateward.sandbox.inside.parent import main; main({theirs.fileno()})"
        )
        self._log = os.memfd_create("stateward-log", os.MFD_CLOEXEC)
        self._folder = Path(tempfile.mkdtemp(prefix="server-", dir=scratch))
        try:
            self._process = subprocess.Popen(
                [target.python, "-c", code],
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                env=server_environment(spec),
                cwd=spec.cwd or None,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # a terminal's Ctrl-C is the client's to handle
            )
        except OSError as error:
            ours.close()
            os.close(self._log)
            self._folder.rmdir()
            raise SystemFault("sandbox", f"server {spec.name!r}: cannot start {target.python}: {error}") from error
        finally:
            theirs.close()
        super().__init__(ours)
        self.spec, self.limits = spec, limits
        self.tools: list[dict[str, Any]] = []
        self.in_child = ""  # why init runs in every world; empty: it runs in the snapshot
        self._names = itertools.count(1)
        order: dict[str, Any] = {
            "kind": target.kind,
            "name": target.name,
            "argv": list(target.argv),
            "scratch": str(self._folder),
        }
        order["own_folder"] = bool(spec.cwd)
        self._link.send(order)

    @classmethod
    async def start(cls, spec: ServerSpec, target: Target, limits: SandboxLimits, scratch: Path) -> WarmParent:
        """Import the server.

        Raises:
            NotForkable: it must run as an ordinary process.
            SystemFault: "sandbox", with the traceback's end, if the import raised or took too long.
        """
        self = cls(spec, target, limits, scratch)
        seconds = limits.start_deadline_seconds
        try:
            async with asyncio.timeout(seconds):
                answer = await self.answer
            if answer["ready"]:
                self.tools, self.in_child = described(answer["tools"]), answer["in_child"]
                if not self.in_child and reserved.wants_session(self.tools, reserved.INIT):
                    self.in_child = "its init asks for session_id"
                return self
        except TimeoutError:
            answer = {"cause": f"its import took longer than {seconds:g} s"}
            self._process.kill()
        except asyncio.CancelledError:
            self._process.kill()
            await self.close()
            raise
        said = tail(self._log)
        await self.close()
        if "not_forkable" in answer:
            raise NotForkable(answer["not_forkable"])
        cause = f"server {spec.name!r} cannot be imported: {answer['cause'].strip()}"
        raise SystemFault("sandbox", cause + (f"; last output: {said}" if said else ""))

    @property
    def pid(self) -> int:
        return self._process.pid

    def new_name(self, letter: str) -> str:
        return f"{letter}{next(self._names)}"

    async def close(self) -> None:
        """End the process and everything it forked; returns when it is gone."""
        self._link.close()
        self._ended("it was closed")
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(None, self._process.wait, 2 * CLOSE_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            await loop.run_in_executor(None, self._process.wait)
        finally:
            if self._log >= 0:
                os.close(self._log)
                self._log = -1
            shutil.rmtree(self._folder, ignore_errors=True)
