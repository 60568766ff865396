"""Where a campaign stands: every stage from its markers and journals, then its Slurm jobs, with what broke and why.

Needs no Slurm. Where there is one, squeue and sacct are asked once each, however many jobs there are.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from stateward.campaign.cli import entry

_EVERY_SECONDS = 15.0


def main(argv: Sequence[str] | None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run_dir", type=Path, metavar="RUN_DIR")
    parser.add_argument("--watch", action="store_true", help="draw it again every 15 s until all is done")
    args = parser.parse_args(argv)
    from stateward.campaign.status_page import status_page

    while True:
        lines, done = status_page(args.run_dir)
        if args.watch and sys.stdout.isatty():
            # Home, and clear to the end: the page is drawn over the old one without a flicker.
            print("\033[H\033[J", end="")
        print("\n".join(lines), flush=True)
        if done or not args.watch:
            return 0 if done else 1
        time.sleep(_EVERY_SECONDS)


if __name__ == "__main__":
    entry(main)
