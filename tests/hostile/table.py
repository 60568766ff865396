"""Run every attack of `attacks.py` in one mode of confinement, and print what came of each as one line of JSON.

    python tests/hostile/table.py MODE          (see `MODES`)
    python tests/hostile/table.py --markdown    every mode, as the table of docs/security.md

Victims are the program's own: a process, files in a temporary folder, two sockets on this machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from attacks import ATTACKS, FORGERIES, HEAD, compile_bomb

from stateward.grading import Evidence, Grade, GradeLimits, Grader
from stateward.grading import grader as client
from stateward.outcome import Outcome
from stateward.tasks import Check

#: Mode → what of the warm grader is switched off.
MODES = {
    "all layers": "",
    "no namespaces": "namespaces.enter = lambda **_: ()",
    "no Landlock": "landlock.abi = lambda: 0",
    "no namespaces, no Landlock": "namespaces.enter = lambda **_: (); landlock.abi = lambda: 0",
}
#: For the test that the attacks are real: without the layers they succeed. (Those that end processes are left out.)
BARE = "no layer"
_BARE = "namespaces.enter = lambda **_: (); landlock.abi = lambda: 0; seccomp.install = lambda **_: False"
_NEEDS_A_WALL = ("kill", "limits and priority of others", "processes and programs")
SECRET = "CANARY-in-a-file"


def use(mode: str) -> None:
    """Start warm graders of this process in `mode` from now on."""
    imports = "from stateward.grading import landlock, namespaces, seccomp, worker"
    client._COMMAND = ("-P", "-c", "\n".join([imports, {**MODES, BARE: _BARE}[mode], "worker.main()"]))


class Scene:
    """What an attack is aimed at, and whether all of it is as it was."""

    def __init__(self, folder: Path, worker: int) -> None:
        self.folder, self.worker = folder, worker
        self.victim = subprocess.Popen(["sleep", "1000"])
        self.datagrams = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.datagrams.setblocking(False)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.setblocking(False)
        self.datagrams.bind(str(folder / "socket"))
        self._files()
        self.before = self._seen()

    def _files(self) -> None:
        for name, text in (("journal", "a row\n"), ("secret", SECRET)):
            (self.folder / name).write_text(text)
            (self.folder / name).chmod(0o600)
        (self.folder / "empty").mkdir(exist_ok=True)

    def _seen(self) -> dict[str, Any]:
        files = {}
        for path in sorted(self.folder.rglob("*")):
            facts = path.lstat()
            data = path.read_bytes() if stat.S_ISREG(facts.st_mode) else b""
            files[path.name] = (facts.st_mode, facts.st_size, facts.st_mtime_ns, facts.st_nlink, data)
        outside = [p for p in ("/dev/shm/stateward-hostile", "/tmp/stateward-hostile") if os.path.exists(p)]
        return {"files": files, "outside": outside, "priority": os.getpriority(os.PRIO_PROCESS, self.victim.pid)}

    def fill(self, body: str) -> str:
        values = {
            "stage": os.getpid(),
            "worker": self.worker,
            "victim": self.victim.pid,
            "journal": self.folder / "journal",
            "secret": self.folder / "secret",
            "folder": self.folder,
            "socket": self.folder / "socket",
            "port": self.listener.getsockname()[1],
        }
        for name, value in values.items():
            body = body.replace(f"<{name}>", str(value))
        return body

    def harm(self) -> list[str]:
        """What an attack changed."""
        found = []
        if self.victim.poll() is not None:
            found.append("the victim is dead")
            self.victim = subprocess.Popen(["sleep", "1000"])
        found += [name for name, value in self._seen().items() if value != self.before[name]]
        for name, receive in (("a datagram", lambda: self.datagrams.recv(99)), ("a connection", self.listener.accept)):
            with contextlib.suppress(BlockingIOError):
                receive()
                found.append(f"{name} arrived")
        try:
            (self.folder / "secret").write_text(SECRET * 100)
        except OSError as error:
            found.append(f"the stage cannot write: {error}")
        finally:
            self._files()
            self.before = self._seen()
        return found

    def close(self) -> None:
        self.victim.kill()
        self.victim.wait()
        self.datagrams.close()
        self.listener.close()


def check(body: str, head: str = HEAD) -> Check:
    source = f"{head}def test_it(x, judge):\n    got = []\n    x.metadata['got'] = got\n"
    return Check(
        file="case.py", function="test_it", source=source + textwrap.indent(textwrap.dedent(body).strip("\n"), "    ")
    )


async def attack(mode: str) -> list[dict[str, Any]]:
    """What came of every attack: {attack, isolation, outcome, cause, got, harm, after}."""
    use(mode)
    os.environ["STAGE_KEY"] = "CANARY-in-the-environment"
    rows = []
    folder = Path(tempfile.mkdtemp(prefix="hostile-"))
    limits = GradeLimits(deadline_seconds=60, memory_mb=512)
    try:
        async with Grader(limits) as grader:
            assert grader._warm is not None
            scene = Scene(folder, grader._warm.process.pid)
            try:
                for name, body in ATTACKS.items():
                    if mode == BARE and name in _NEEDS_A_WALL:
                        continue
                    grade = await grader.grade(check(scene.fill(body)), Evidence())
                    rows.append(await _row(name, grader, grade, scene))
            finally:
                scene.close()
        async with Grader(GradeLimits(deadline_seconds=2, memory_mb=2_048)) as grader:
            for name, (body, cause) in FORGERIES.items():
                source = check(body.replace("<bomb>", compile_bomb()))
                grade = await grader.grade(source, Evidence())
                row = {"attack": name, "outcome": grade.outcome.value, "cause": grade.fault_cause, "wanted": cause}
                rows.append({**row, "isolation": grade.isolation, "after": await _after(grader)})
    finally:
        shutil.rmtree(folder)
    return rows


async def _row(name: str, grader: Grader, grade: Grade, scene: Scene) -> dict[str, Any]:
    return {
        "attack": name,
        "isolation": grade.isolation,
        "outcome": grade.outcome.value,
        "cause": grade.fault_cause,
        "got": grade.metadata.get("got", []),
        "harm": scene.harm(),
        "after": await _after(grader),
    }


async def _after(grader: Grader) -> list[str]:
    """The outcomes of two honest checks: one that holds and one that does not."""
    return [(await grader.grade(check(body, ""), Evidence())).outcome.value for body in ("pass", "assert False")]


def result(row: dict[str, Any]) -> str:
    """One word for the table."""
    if row["after"] != [Outcome.PASS.value, Outcome.FAIL.value]:
        return "**changes other grades**"
    if "wanted" in row:
        return "void" if row["outcome"] == "void" else "**accepted**"
    return "**" + ", ".join([*map(str, row["got"]), *row["harm"]]) + "**" if row["got"] or row["harm"] else "nothing"


def ordinary_user(arguments: list[str]) -> list[str]:
    """The command of this Python, or of the system's, as an ordinary user. Empty where that user can run neither."""
    if os.getuid() != 0:
        return [sys.executable, "-P", *arguments]
    user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"] if shutil.which("setpriv") else []
    # The system's where this one is in root's own folder; the packages are this one's.
    packages = f"PYTHONPATH={os.pathsep.join(path for path in sys.path if path.startswith('/'))}"
    again = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import stateward.grading'], check=True)"
    version = ".".join(map(str, sys.version_info[:2]))
    for python in (sys.executable, f"/usr/bin/python{version}"):
        command = [*user, "env", packages, python, "-P"]
        if user and subprocess.run([*command, "-c", again], capture_output=True).returncode == 0:
            return [*command, *arguments]
    return []


def rows_of(mode: str, *, as_user: bool) -> list[dict[str, Any]]:
    """`attack` in a process of its own; as an ordinary user where this one is root and `as_user` says so."""
    arguments = [str(Path(__file__)), mode]
    command = ordinary_user(arguments) if as_user else [sys.executable, "-P", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise RuntimeError(f"{mode}: {done.stderr}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def _markdown() -> Iterator[str]:
    columns = {mode: {row["attack"]: result(row) for row in rows_of(mode, as_user=True)} for mode in MODES}
    yield "| attack | " + " | ".join(columns) + " |"
    yield "|---" * (len(columns) + 1) + "|"
    for name in [*ATTACKS, *FORGERIES]:
        yield f"| {name} | " + " | ".join(column[name] for column in columns.values()) + " |"


if __name__ == "__main__":
    if sys.argv[1:] == ["--markdown"]:
        print("\n".join(_markdown()))
    else:
        for line in asyncio.run(attack(sys.argv[1])):
            print(json.dumps(line))
