"""Whether an image fits, before GPU hours are queued.

python -m stateward.cluster.container check IMAGE [--cluster NAME]    # APPTAINER=PROGRAM names another apptainer
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from stateward.cluster.image_check import check_image
from stateward.errors import program


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m stateward.cluster.container",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    check = commands.add_parser("check", help="whether an image fits this machine or a cluster's nodes")
    check.add_argument("image", type=Path)
    check.add_argument(
        "--cluster", metavar="NAME", help="look on the training nodes: configs/cluster/NAME.yaml or a file"
    )
    args = parser.parse_args(argv)
    wrong = 0
    for finding in check_image(args.image, args.cluster):
        wrong += finding.state == "bad"
        print(finding.line(), flush=True)
    print(f"\n{wrong} to mend" if wrong else "\nthis image can be used")
    return 1 if wrong else 0


if __name__ == "__main__":
    program(main)
