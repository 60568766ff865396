"""Mutation testing: change one thing in the code, run the fast tests that execute it, and see whether one fails.

    python tools/mutation.py [GROUP ...] [--sample N] [--seed S] [--minutes M] [--out FILE]

Each mutant is one change of tools/mutants.py in a copy of the checkout. A first run of a group's tests notes which test
executes which line; a mutant runs these, the quickest first, until one fails. A mutant that takes longer than its limit
counts as caught. With an `--out` file from before, what stands there is not run again.

Why not mutmut or cosmic-ray: mutmut switches mutants on by an environment variable, which the graders, who start with a
clean environment, do not see, and mutates functions only. cosmic-ray runs every test for each mutant.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import random
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from mutants import Mutant, mutants_of

ROOT = Path(__file__).resolve().parents[1]
FAST = "not (engines or verl or slurm or apptainer or typesense or browser or slow or nightly or chaos)"
#: A mutant's limit: so many seconds, and so many times what its tests took before.
LEAST_SECONDS, TIMES = 30.0, 8.0
#: Loaded once, before the forks: what the tests import and no mutant changes.
PRELOADED = (
    "numpy",
    "scipy.special",
    "scipy.stats",
    "h5py",
    "orjson",
    "isal",
    "yaml",
    "hypothesis",
    "httpx",
    "pydantic",
)


@dataclass(frozen=True, kw_only=True)
class Group:
    """Modules, and the tests that must notice a change of them.

    Attributes:
        modules, tests: glob patterns below the root. without: names that are left out.
        processes: the modules also run in processes of their own, where no line is noted; then every test is run for
            a line that none was seen to execute. Otherwise such a mutant counts as not caught.
    """

    modules: tuple[str, ...]
    tests: tuple[str, ...]
    without: tuple[str, ...] = ()
    processes: bool = False


_LIB = "lib/stateward"
_DECISIONS = ("owed", "chain", "stages", "sampling", "links", "submission")
_THEIR_TESTS = ("stages", "chain", "sampling", "status", "submission")
GROUPS = {
    "store": Group(modules=(f"{_LIB}/store/*.py",), tests=("tests/store",)),
    "difficulty": Group(
        modules=(f"{_LIB}/difficulty/*.py",),
        tests=("tests/difficulty",),
        without=("bench.py", "bench_rows.py", "plots.py"),
    ),
    "grading": Group(
        modules=(f"{_LIB}/grading/*.py", f"{_LIB}/grading/checkapi/*.py"), tests=("tests/grading",), processes=True
    ),
    "campaign": Group(
        modules=tuple(f"{_LIB}/campaign/{name}.py" for name in _DECISIONS),
        tests=tuple(
            f"tests/campaign/test_{name}.py" for name in ("stages", "chain", "sampling", "status", "submission")
        ),
    ),
    "training.groups": Group(modules=(f"{_LIB}/training/groups.py",), tests=("tests/training/test_groups.py",)),
}


class Tracer:
    """A pytest plugin that notes which test executes which line of the modules, and how long each test takes.

    What runs while modules are imported or fixtures are set up counts for every test of the file (of all files, for
    an import), as a fixture may serve several tests.
    """

    def __init__(self, files: Sequence[str], out: Path) -> None:
        self._files, self._out = set(files), out
        self.lines: dict[str, set[tuple[str, int]]] = defaultdict(set)
        self.seconds: dict[str, float] = {}
        self._now = ""
        threading.settrace(self._call)
        sys.settrace(self._call)

    def _call(self, frame: FrameType, event: str, arg: object) -> Any:
        return self._line if frame.f_code.co_filename in self._files else None

    def _line(self, frame: FrameType, event: str, arg: object) -> Any:
        self.lines[self._now].add((frame.f_code.co_filename, frame.f_lineno))
        return self._line

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._now, began = item.nodeid.split("::")[0], time.monotonic()
        result = yield
        self.seconds[item.nodeid], self._now = time.monotonic() - began, ""
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        self._now = item.nodeid
        try:
            return (yield)
        finally:
            self._now = item.nodeid.split("::")[0]

    def pytest_sessionfinish(self) -> None:
        sys.settrace(None)
        lines = {name: sorted(found) for name, found in self.lines.items()}
        self._out.write_text(json.dumps({"lines": lines, "seconds": self.seconds}))


class Copy:
    """A copy of the checkout to change, and the place where tests run against it."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "copy"
        self._log, self._temporary = folder / "log", folder / "tmp"
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
        for name in filter(None, listed.stdout.split("\0")):
            if (ROOT / name).is_file():
                (self.root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, self.root / name)
        # Compiled once, valid by content: two versions of a mutated file may have one size and one time.
        compile_all = ["-m", "compileall", "-q", "--invalidation-mode", "checked-hash", str(self.root / "lib")]
        subprocess.run(
            [sys.executable, *compile_all], check=False, capture_output=True
        )  # some task files are no Python

    def run(self, tests: Sequence[str], seconds: float | None, plugin: Any = None, *, markers: str = FAST) -> str:
        """``passed``, ``failed`` or ``timeout``."""
        pid = os.fork()
        if pid == 0:
            self._child(tests, plugin, markers)
        fd = os.pidfd_open(pid)
        try:
            if not select.select([fd], [], [], seconds)[0]:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                return "timeout"
        except BaseException:  # this program is to end: its tests end with it
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
            raise
        finally:
            os.close(fd)
        status = os.waitpid(pid, 0)[1]
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)  # what a broken test left behind
        return "passed" if status == 0 else "failed"

    def _child(self, tests: Sequence[str], plugin: Any, markers: str) -> None:
        code = 70  # unless pytest answers
        try:
            os.setsid()
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.chdir(self.root)
            for number in (1, 2):
                os.dup2(os.open(self._log, os.O_CREAT | os.O_WRONLY | os.O_TRUNC), number)
            os.environ |= {"PYTHONPATH": str(self.root / "lib"), "PYTHONDONTWRITEBYTECODE": "1"}
            sys.path.insert(0, str(self.root / "lib"))
            sys.dont_write_bytecode = True
            options = ["-x", "-q", "-p", "no:cacheprovider", "-m", markers, f"--basetemp={self._temporary}"]
            code = pytest.main([*options, *tests], plugins=[plugin()] if plugin else [])
        finally:
            os._exit(int(code))

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")


class Tests:
    """The tests of a group, and which of them execute which line."""

    def __init__(self, group: Group, copy: Copy, files: Sequence[Path]) -> None:
        notes = copy.root / "notes.json"
        names = [str(copy.root / file) for file in files]
        if copy.run(group.tests, None, lambda: Tracer(names, notes)) != "passed":
            raise SystemExit(f"the tests do not pass without a mutant:\n{copy.log[-4000:]}")
        noted = json.loads(notes.read_text())
        self.seconds: dict[str, float] = noted["seconds"]
        self._by_line: dict[tuple[str, int], set[str]] = defaultdict(set)
        for name, lines in noted["lines"].items():
            tests = {name} if name in self.seconds else {test for test in self.seconds if test.startswith(name)}
            for file, line in lines:
                self._by_line[str(Path(file).relative_to(copy.root)), line] |= tests
        self._processes = group.processes

    def of(self, mutant: Mutant) -> list[str]:
        """The tests that execute the mutant's statement, the quickest first."""
        found = {t for line in range(mutant.first, mutant.last + 1) for t in self._by_line.get((mutant.file, line), ())}
        if not found and self._processes:
            found = set(self.seconds)
        return sorted(found, key=self.seconds.__getitem__)


def run_group(
    name: str, sample: int, seed: int, deadline: float, earlier: dict[str, dict[str, Any]], out: Any
) -> list[dict[str, Any]]:
    group = GROUPS[name]
    files = sorted({path.relative_to(ROOT) for pattern in group.modules for path in ROOT.glob(pattern)})
    files = [file for file in files if file.name not in group.without]
    every = [mutant for file in files for mutant in mutants_of((ROOT / file).read_text(), str(file))]
    random.Random(seed).shuffle(every)
    rows = []
    with tempfile.TemporaryDirectory(prefix="mutation-") as folder:
        copy = Copy(Path(folder))
        tests = Tests(group, copy, files)
        for mutant in every[: sample or None]:
            row = earlier.get(mutant.name)
            if row is None:
                if time.monotonic() > deadline:
                    break
                row = {"group": name, "of": len(every), "mutant": mutant.name, **judge(mutant, copy, tests)}
                print(f"{row['result']:<8} {row['seconds']:6.1f} s  {mutant.name}", flush=True)
                out.write(json.dumps(row) + "\n")
                out.flush()
            rows.append(row)
    return rows


def judge(mutant: Mutant, copy: Copy, tests: Tests) -> dict[str, Any]:
    chosen = tests.of(mutant)
    if not chosen:
        return {"result": "no test", "seconds": 0.0, "tests": 0}
    path, limit = copy.root / mutant.file, LEAST_SECONDS + TIMES * sum(tests.seconds[test] for test in chosen)
    before, began = path.read_text(), time.monotonic()
    path.write_text(mutant.text)
    try:
        result = {"passed": "survived", "failed": "caught", "timeout": "timeout"}[copy.run(chosen, limit)]
    finally:
        path.write_text(before)
    return {"result": result, "seconds": time.monotonic() - began, "tests": len(chosen)}


def table(rows: Sequence[dict[str, Any]]) -> list[str]:
    lines = ["| group | mutants | run | caught | of it by the limit | survived | no test | score |"]
    lines.append("|---|---:|---:|---:|---:|---:|---:|---:|")
    for name in GROUPS:
        own = [row for row in rows if row["group"] == name]
        if own:
            n = Counter(row["result"] for row in own)
            caught = n["caught"] + n["timeout"]
            cells = [own[0]["of"], len(own), caught, n["timeout"], n["survived"], n["no test"]]
            lines.append(f"| {name} | {' | '.join(map(str, cells))} | {caught / len(own):.0%} |")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=f"of {', '.join(GROUPS)} (default: all)")
    parser.add_argument("--sample", type=int, default=0, metavar="N", help="at most so many mutants of each (0: all)")
    parser.add_argument("--seed", type=int, default=1, help="which ones (default 1)")
    parser.add_argument("--minutes", type=float, default=1e9, metavar="M", help="stop after so long")
    parser.add_argument("--out", type=Path, default=ROOT / "runs" / "mutation.jsonl", help="results, one mutant a line")
    args = parser.parse_args()
    if wrong := set(args.groups) - set(GROUPS):
        parser.error(f"unknown group {', '.join(sorted(wrong))}; there are {', '.join(GROUPS)}")
    for name in PRELOADED:
        importlib.import_module(name)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    earlier = {}
    if args.out.exists():
        earlier = {row["mutant"]: row for row in map(json.loads, args.out.read_text().splitlines())}
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the copy is removed
    deadline = time.monotonic() + 60 * args.minutes
    rows = []
    with args.out.open("a") as out:
        for name in args.groups or GROUPS:
            rows += run_group(name, args.sample, args.seed, deadline, earlier, out)
    print("\n".join(table(rows)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
