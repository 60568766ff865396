"""Where a campaign stands, stage by stage, from its markers and journals."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from stateward.campaign.cli import entry


def main(argv: Sequence[str] | None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run_dir", type=Path, metavar="RUN_DIR")
    args = parser.parse_args(argv)
    from stateward.campaign.status import stage_states

    states = list(stage_states(args.run_dir))
    width = max(len(state.name) for state in states)
    for state in states:
        print(f"{state.name:<{width}}  {state.state:<9}  {state.detail}".rstrip())
    return 0 if all(state.state == "done" for state in states) else 1


if __name__ == "__main__":
    entry(main)
