"""Whether a start that failed is worth another: a failure that repeats identically is not retried for ever.

    python -m stateward.cluster.retry --shared RUN_DIR/train --status 1 --progress 'checkpoints/*/VERIFIED' \\
        --told plan/driver_result.json

The batch script asks this once its step has ended badly; status 0 is yes. Each failed start leaves a line in
``failures.jsonl``: what failed, and how far the work had come. The same failure twice with nothing gained in between is
final. Anything else may have been a node, a device or a neighbour, which another start does not meet again.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from stateward.cluster.rendezvous import CANARY, start_folder

#: How programs of ours end when another start would end there again (`errors`).
_FINAL = {2: "another start would make the same mistake", 3: "another start would come to the same end"}
_NUMBERS = re.compile(r"\d+")


def worth_another(
    shared: Path, *, status: int, progress: str, env: Mapping[str, str], told: str = ""
) -> tuple[bool, str]:
    """Whether to start again, and why or why not.

    Args:
        shared: folder of all starts of this run. status: of the step.
        progress: glob below `shared` of files that come as the work goes on, such as marks of checkpoints.
        env: Slurm's variables, which name this start.
        told: file below `shared` in which the work leaves its own ``error``; one of an earlier start does not count.
    """
    folder = start_folder(shared, env)
    said = _cause(folder) or _told(shared / told, folder)
    cause = said or f"the step ended with status {status}"
    if status in _FINAL:
        return False, f"{cause}: {_FINAL[status]}"
    # Numbers (processes, ports, seconds) do not make what was said another failure.
    this = {"cause": _NUMBERS.sub("#", said) or cause, "progress": _fingerprint(sorted(shared.glob(progress)))}
    record = shared / "failures.jsonl"
    before = record.read_text().splitlines() if record.is_file() else []
    shared.mkdir(parents=True, exist_ok=True)
    with record.open("a") as file:
        file.write(json.dumps(this) + "\n")
    if before and json.loads(before[-1]) == this:
        return False, f"{cause}: the same as at the start before, and nothing was gained in between"
    return True, cause


def _cause(folder: Path) -> str:
    """What the ranks said when they gave up; the first in order of rank, as the others followed it."""
    for path in sorted(folder.glob("failed-*.json")):
        row = json.loads(path.read_text())
        return f"rank {row['rank']}: {row['cause']}"
    return ""


def _told(file: Path, folder: Path) -> str:
    """What the work itself said in `file`, if it was written since rank 0 opened this start's `folder`."""
    canary = folder / CANARY
    if not (file.is_file() and canary.is_file()) or file.stat().st_mtime < canary.stat().st_mtime:
        return ""
    return str(json.loads(file.read_text()).get("error", ""))


def _fingerprint(files: Sequence[Path]) -> str:
    return hashlib.sha256("\n".join(f"{path}:{path.stat().st_size}" for path in files).encode()).hexdigest()[:16]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shared", type=Path, required=True, help="the folder that the step was given")
    parser.add_argument("--status", type=int, required=True, help="exit status of the step")
    parser.add_argument("--progress", required=True, help="glob below it of files that mark progress")
    parser.add_argument("--told", default="", help="file below it in which the work leaves why it ended")
    args = parser.parse_args(argv)
    again, why = worth_another(args.shared, status=args.status, progress=args.progress, env=os.environ, told=args.told)
    print(f"{'another start' if again else 'no other start'}: {why}", flush=True)
    return 0 if again else 1


if __name__ == "__main__":
    sys.exit(main())
