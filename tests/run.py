"""``python tests/run.py [--nightly]``: the whole suite.

Fast tests first, in two processes. Then the slow ones and those with real engines, in three: engines and Slurm spend a
part of their time waiting, and the others fill it. A failed test runs once more, alone: where others use the machine
too, a deadline can pass although nothing is wrong. What fails twice fails. What passes the second time is named and
counted, and more than `FLAKY` such tests fail the run.

``--nightly`` runs what takes longer and is left out of every other run.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

FLAKY = 3
SLOW = "engines or verl or slurm or apptainer or typesense or browser or slow"
#: A file stays in one process, and the files begin in the order of support/by_file.py.
BY_FILE = ["--dist", "loadfile", "--no-loadscope-reorder"]
#: Title → pytest's options.
GROUPS = {
    # A module's tests in one process: its fixtures, such as warm tool servers, are made once.
    "fast tests": ["-n", "2", "--dist", "loadscope", "-m", f"not ({SLOW} or nightly or chaos)"],
    "slow and engine tests": ["-n", "3", *BY_FILE, "--timeout=1800", "-m", f"({SLOW}) and not (nightly or chaos)"],
}
NIGHTLY = {"nightly tests": ["-n", "2", *BY_FILE, "--timeout=3600", "-m", "nightly and not chaos"]}
ROOT = Path(__file__).parents[1]


def pytest(title: str, options: Sequence[str]) -> tuple[int, list[str]]:
    """Exit status of a run, and the tests that failed in it."""
    cache = ROOT / ".pytest_cache" / title.replace(" ", "-")
    failed = cache / "v" / "cache" / "lastfailed"
    failed.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-q", "--durations=15", "-o", f"cache_dir={cache}", *options]
    status = subprocess.run(command, cwd=ROOT).returncode
    return status, list(json.loads(failed.read_text())) if failed.is_file() else []


def main(arguments: Sequence[str]) -> int:
    groups = NIGHTLY if "--nightly" in arguments else GROUPS
    flaky: list[str] = []
    broken: list[str] = []
    for title, options in groups.items():
        print(f"── {title}", flush=True)
        status, failed = pytest(title, options)
        if status not in (0, 1) or (status == 1 and not failed):
            broken.append(f"{title}: pytest ended with status {status}")
        elif len(flaky) + len(failed) > FLAKY:
            broken += failed
        elif failed:
            print(f"── {title}: {len(failed)} failed; once more, alone", flush=True)
            status, again = pytest(f"{title} again", ["--timeout", "3600", *failed])
            if status not in (0, 1) or (status == 1 and not again):
                again = failed
            broken += again
            flaky += [name for name in failed if name not in again]
    for name in broken:
        print(f"FAILED {name}")
    for name in flaky:
        print(f"FLAKY {name}: failed, and passed when it ran again, alone")
    print(f"{len(broken)} failed, {len(flaky)} flaky (at most {FLAKY} failures run again)", flush=True)
    return 1 if broken else 0


if __name__ == "__main__":
    os.chdir(ROOT)
    sys.exit(main(sys.argv[1:]))
