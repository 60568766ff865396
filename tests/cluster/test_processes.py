"""Ending what descends from a process, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid

from stateward.cluster.processes import carrying

PROGRAM = """\
import os, subprocess, sys, time
import psutil
from stateward.cluster.processes import adopt_orphans, stop_descendants

adopt_orphans()
kept = subprocess.Popen(["sh", "-c", "sleep 600 & wait"])
# A daemon: its own parent ends at once, so that it becomes ours. It does not mind SIGTERM.
code = "import os, signal, time; os.fork() and os._exit(0); os.setsid(); signal.signal(15, signal.SIG_IGN); "
code += "time.sleep(600)"
subprocess.run([sys.executable, "-c", code])
until = time.monotonic() + 60
while len(psutil.Process().children()) < 2 or len(psutil.Process(kept.pid).children()) < 1:
    assert time.monotonic() < until
stopped = stop_descendants(patience=0.2, spare={kept.pid})
left = [p.pid for p in psutil.Process().children() if p.status() != psutil.STATUS_ZOMBIE]
print(stopped, left == [kept.pid], len(psutil.Process(kept.pid).children()))
print(stop_descendants(patience=2.0), [p for p in psutil.Process().children(True) if p.status() != "zombie"])
"""


def test_daemons_are_found_and_what_is_to_be_spared_is_left() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.splitlines() == ["1 True 1", "2 []"]


def test_processes_are_found_by_all_of_the_variables_that_they_carry() -> None:
    mark = uuid.uuid4().hex
    with subprocess.Popen(["cat"], env={**os.environ, "MARK": mark, "PART": "1"}, stdin=subprocess.PIPE) as process:
        assert [(found.pid, env["PART"]) for found, env in carrying({"MARK": mark})] == [(process.pid, "1")]
        assert [found.pid for found, _ in carrying({"MARK": mark, "PART": "1"})] == [process.pid]
        assert carrying({"MARK": mark, "PART": "2"}) == []
    assert carrying({"MARK": mark}) == []
