"""Checks that misbehave: each is void within its deadline, with the cause, and the next one is graded as ever."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import textwrap
import time
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest

from stateward.errors import SystemFault, UserError
from stateward.grading import Evidence, Grade, GradeLimits, Grader, namespaces
from stateward.grading import grader as client
from stateward.outcome import Outcome

from .conftest import FakeJudge, check

pytestmark = pytest.mark.slow

CTYPES = "import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\n"


def into_every_file(data: str) -> str:
    """Code that writes bytes into every open file, the line to the grader among them."""
    return f"import os\nfor fd in range(3, 20):\n    try: os.write(fd, b{data})\n    except OSError: pass\n"


#: Body, and what the cause says.
HOSTILE = {
    "endless loop": ("while True: pass", "time limit of 1 s"),
    "endless sleep": ("import time\ntime.sleep(1000)", "time limit of 1 s"),
    "endless loop in C": ("sum(range(10 ** 12))", "time limit of 1 s"),
    "ignores signals": (
        "import signal\nfor n in (1, 2, 3, 15): signal.signal(n, signal.SIG_IGN)\nwhile True: pass",
        "time limit of 1 s",
    ),
    "memory bomb": ("a = [bytearray(1 << 26) for _ in range(1000)]", "MemoryError"),
    "memory bomb of strings": ("a = 'x' * (1 << 40)", "MemoryError"),
    "exit": ("import os\nos._exit(0)", "exit status 0"),
    "exit with a status": ("import os\nos._exit(7)", "exit status 7"),
    "kills itself": ("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)", "signal 9 (SIGKILL)"),
    "kills itself without a name": ("import os\nos.kill(os.getpid(), 40)", "signal 40 ("),
    "crashes": ("import ctypes\nctypes.string_at(0)", "signal 11 (SIGSEGV)"),
    "aborts": ("import os\nos.abort()", "signal 6 (SIGABRT)"),
    "closes every file": ("import os\nos.closerange(0, 1000)", "ended without a verdict"),
    "closes every file and goes on": ("import os\nos.closerange(0, 1000)\nwhile True: pass", "closed its line"),
    "writes into every file": (into_every_file("'\\0' * 100"), "wrote into its line"),
    "writes and is gone": (into_every_file("'\\0' * 100") + "os._exit(0)", "wrote into its line"),
    "begins a long message and is gone": (
        into_every_file("'\\0\\1\\0\\0' * 9") + "os._exit(0)",
        "ended without a verdict",
    ),
    "forks": ("import os\nos.fork()", "may not start a process"),
    "starts a program": ("import subprocess\nsubprocess.run(['true'])", "may not start a program"),
    "system": ("import os\nos.system('true')", "may not start a program"),
    "network": ("import socket\nsocket.create_connection(('127.0.0.1', 1))", "may not look up a network name"),
    "network by address": ("import socket\nsocket.socket().connect(('127.0.0.1', 1))", "may not open a network"),
    "web": ("import urllib.request\nurllib.request.urlopen('http://127.0.0.1:1')", "network"),
    "asks for a huge result": ("x.metadata['a'] = 'a' * 10_000_000", "more than 4000000 bytes"),
    "kills the grader": ("import os, signal\nos.kill(os.getppid(), signal.SIGKILL)", "PermissionError"),
    "kills everything": ("import os, signal\nos.kill(-1, signal.SIGKILL)", "PermissionError"),
    "writes a file": ("open('{tmp}/left', 'w').write('a' * 100_000)", "may not write the file"),
    "reads a process": ("import os\nopen(f'/proc/{os.getppid()}/environ').read()", "may not look into other"),
}


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("name", HOSTILE)
async def test_hostile(run, grader: Grader, name: str, tmp_path: Path) -> None:
    body, cause = HOSTILE[name]
    started = time.monotonic()
    grade = await run(body.replace("{tmp}", str(tmp_path)), deadline=1 if "time limit" in cause else 20)
    assert time.monotonic() - started < 30  # far above the deadline, far below for ever
    assert (grade.outcome, grade.fault_kind) == (Outcome.VOID, "grader")
    assert cause in grade.fault_cause
    assert grade.isolation == grader.isolation
    after = await run("print('fine')")
    assert (after.outcome, after.prints) == (Outcome.PASS, "fine\n")
    assert children(grader) == []


@pytest.mark.asyncio(loop_scope="module")
async def test_fork_bomb(run, grader: Grader) -> None:
    grade = await run("while libc.fork() >= 0: pass\nreturn 0.5", deadline=5, head=CTYPES)
    if "filter" in grader.isolation:
        assert grade.reward == 0.5
    else:
        assert "time limit" in grade.fault_cause
    assert children(grader) == []


def children(grader: Grader) -> list[psutil.Process]:
    """Every process below the warm grader, but for the one that keeps its process ids."""
    assert grader._warm is not None
    return checks_of(psutil.Process(grader._warm.process.pid))


def checks_of(warm: psutil.Process) -> list[psutil.Process]:
    return [process for process in warm.children(recursive=True) if process.name() != namespaces.INIT_NAME.decode()]


def is_alive(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE  # a zombie only waits for its parent
    except psutil.NoSuchProcess:
        return False


async def gone(processes: list[psutil.Process]) -> None:
    """Wait until all have ended, for as long as the test may last."""

    def wait() -> None:
        for process in processes:
            while is_alive(process):
                with contextlib.suppress(psutil.TimeoutExpired):
                    process.wait(0.05)

    await asyncio.to_thread(wait)


#: A check that says through the judge that it is under way, and then never ends.
ENDLESS = "judge.yesno('are you there?')\nwhile True: pass"


@contextlib.asynccontextmanager
async def endless_grade() -> AsyncIterator[tuple[Grader, asyncio.Task[Grade]]]:
    """A grader with an `ENDLESS` grade under way."""
    there = asyncio.Event()

    def answer(_: object) -> str:
        there.set()
        return "Yes"

    async with Grader(judge=FakeJudge(answer)) as grader:
        task = asyncio.create_task(grader.grade(check(ENDLESS), Evidence()))
        await there.wait()
        assert len(children(grader)) == 1
        yield grader, task


async def test_no_secret_is_in_sight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_KEY", "s3cret-value")
    monkeypatch.setenv("PYTHONPATH", "/some/where")
    other = await asyncio.create_subprocess_exec("sleep", "300", env={"API_KEY": "s3cret-value"})
    body = f"""
    seen = repr(dict(os.environ))
    assert "s3cret" not in seen and "/some/where" in seen
    fd = libc.open(b"/proc/{other.pid}/environ", 0)  # past the audit hook
    buffer = ctypes.create_string_buffer(1 << 16)
    assert fd < 0 or b"s3cret" not in buffer.raw[:max(0, libc.read(fd, buffer, len(buffer)))]
    """
    try:
        assert "s3cret" in psutil.Process(other.pid).environ()["API_KEY"]  # this user's processes can be read
        async with Grader() as grader:
            if "namespace" not in grader.isolation:
                pytest.skip("this machine gives no user namespace, so a check of the same user can read /proc")
            grade = await grader.grade(check(body, head=CTYPES), Evidence())
    finally:
        other.kill()
        await other.wait()
    assert grade.outcome is Outcome.PASS, (grade.failure, grade.fault_cause)


async def test_no_network_even_past_the_hook() -> None:
    body = """
    import _socket
    assert libc.socket(2, 1, 0) == -1 or [name for _, name in _socket.if_nameindex()] == ["lo"]
    left, right = _socket.socketpair()
    """
    async with Grader() as grader:
        assert {"namespace", "filter"} & set(grader.isolation.split("+"))
        grade = await grader.grade(check(body, head=CTYPES), Evidence())
    assert grade.outcome is Outcome.PASS, (grade.failure, grade.fault_cause)


async def test_threads_work_and_do_not_hold_a_grade_up() -> None:
    body = """
    import threading, time
    threads = [threading.Thread(target=time.sleep, args=(1000,)) for _ in range(8)]
    for thread in threads: thread.start()
    """
    async with Grader(GradeLimits(memory_mb=512)) as grader:
        grade = await grader.grade(check(body), Evidence())
    assert grade.outcome is Outcome.PASS, grade.fault_cause


async def test_ten_megabytes_of_output() -> None:
    async with Grader(GradeLimits(max_print_bytes=1_000)) as grader:
        grade = await grader.grade(check("for _ in range(1000): print('a' * 10_000)"), Evidence())
    assert grade.outcome is Outcome.PASS, grade.fault_cause
    assert grade.prints == "a" * 1_000 + "\n… 10000000 more characters"


async def test_large_evidence() -> None:
    effects = {"shop": {"rows": [{"id": n, "text": "x" * 90} for n in range(50_000)]}}
    async with Grader() as grader:
        grade = await grader.grade(
            check("assert x.effects['shop']['rows'][-1]['id'] == 49_999"), Evidence(effects=effects)
        )
    assert grade.outcome is Outcome.PASS, grade.fault_cause


async def test_others_go_on_beside_a_hostile_check() -> None:
    async with Grader(GradeLimits(deadline_seconds=120)) as grader:  # nobody waits for it
        slow = asyncio.create_task(grader.grade(check("while True: pass"), Evidence()))
        grades = await asyncio.gather(*(grader.grade(check("pass"), Evidence()) for _ in range(20)))
        assert not slow.done()
        assert {grade.outcome for grade in grades} == {Outcome.PASS}
        slow.cancel()
        with pytest.raises(asyncio.CancelledError):
            await slow


async def test_a_cancelled_grade_leaves_no_process() -> None:
    async with endless_grade() as (grader, task):
        family = children(grader)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await gone(family)
        assert (await grader.grade(check("pass"), Evidence())).outcome is Outcome.PASS


async def test_a_grader_that_dies_voids_and_comes_back() -> None:
    async with endless_grade() as (grader, task):
        family = children(grader)
        assert grader._warm is not None
        os.kill(grader._warm.process.pid, signal.SIGKILL)
        grade = await task
        assert (grade.outcome, grade.fault_kind) == (Outcome.VOID, "grader")
        assert "exit status -9" in grade.fault_cause
        await gone(family)
        assert (await grader.grade(check("pass"), Evidence())).outcome is Outcome.PASS


async def test_leaving_the_block_ends_everything() -> None:
    async with endless_grade() as (grader, task):
        assert grader._warm is not None
        family = [psutil.Process(grader._warm.process.pid), *children(grader)]
    grade = await task
    assert (grade.outcome, grade.fault_kind) == (Outcome.VOID, "grader")
    assert not [process for process in family if is_alive(process)]


CLIENT = f"""
import asyncio
from stateward.grading import Evidence, Grader
from stateward.tasks import Check

class Judge:
    async def chat(self, messages, **options):
        print(grader._warm.process.pid, flush=True)
        await asyncio.Event().wait()

async def main():
    global grader
    async with Grader(judge=Judge()) as grader:
        source = "def f(x, judge):\\n" + {textwrap.indent(ENDLESS, "  ")!r}
        await grader.grade(Check(file="c.py", function="f", source=source), Evidence())

asyncio.run(main())
"""


async def test_a_killed_client_leaves_no_process() -> None:
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", CLIENT, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    warm = psutil.Process(int(await process.stdout.readline()))
    family = [warm, *warm.children()]
    assert len(checks_of(warm)) == 1
    process.kill()
    await process.wait()
    await gone(family)


UNPROTECTED = (
    "-P",
    "-c",
    "from stateward.grading import landlock, namespaces, seccomp, worker\n"
    "namespaces.enter, landlock.abi, seccomp.install = lambda **_: (), lambda: 0, lambda **_: False\n"
    "worker.main()",
)


async def test_without_kernel_support_processes_are_still_cleared(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine with neither layer, what a check starts past the hook ends with the check, in any session."""
    monkeypatch.setattr(client, "_COMMAND", UNPROTECTED)
    body = """
    for _ in range(3):
        if libc.fork() == 0:
            os.setsid()
            if libc.fork() == 0:
                os.setsid()
            while True: pass
    """
    async with Grader(GradeLimits(deadline_seconds=20)) as grader:
        assert grader.isolation == "hook"
        grade = await grader.grade(check(body, head=CTYPES), Evidence())
        assert grade.outcome is Outcome.PASS, grade.fault_cause
        assert children(grader) == []
        network = await grader.grade(check("import socket\nsocket.socket()"), Evidence())
        assert "may not open a network connection" in network.fault_cause
        assert network.isolation == "hook"


async def test_fewer_layers_than_required_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_COMMAND", UNPROTECTED)
    with pytest.raises(UserError, match="confined by 'landlock'"):
        async with Grader(require=["hook", "landlock"]):
            pass


async def test_a_grader_that_cannot_start_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_COMMAND", ("-c", "raise SystemExit(3)"))
    with pytest.raises(SystemFault, match="exit status 3"):
        async with Grader():
            pass
