"""The whole campaign: probe → curate → train → merge → evaluate (base and tuned) → report.

Runs the stages here, one after the other. May be interrupted and called again at any time: finished stages are
skipped and a part is continued.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from stateward.campaign.cli import configured, entry, stage_parser
from stateward.campaign.pipeline import run_steps, steps


def main(argv: Sequence[str] | None) -> int:
    args = stage_parser(__doc__ or "").parse_args(argv)
    config = configured(args)
    plan = steps(args.config, config, args.overrides)
    print(f"campaign {config.name!r}: {len(plan)} stages, run directory {config.run_dir}")
    if args.dry_run:
        for step in plan:
            print(f"{step.title}\n  {shlex.join(step.command)}")
        return 0
    return run_steps(plan)


if __name__ == "__main__":
    entry(main)
