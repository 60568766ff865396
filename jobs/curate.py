"""Curate: choose the tasks that can teach the policy, and prove that the benchmark is not among them.

Reads RUN_DIR/probe, or every --input (run directories, stage directories, JSONL files). Writes RUN_DIR/pool: selector
lists, one line a task with the reason for its decision, the evidence against contamination, a manifest and plots.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from stateward.campaign.cli import configured, entry, stage_parser


def main(argv: Sequence[str] | None) -> int:
    parser = stage_parser(__doc__ or "")
    parser.add_argument(
        "--input", action="append", metavar="PATH", help="probe results; may be repeated (default: RUN_DIR/probe)"
    )
    parser.add_argument("--unfinished", action="store_true", help="take a probe that has not ended")
    parser.add_argument("--replace", action="store_true", help="replace a pool that was made from other inputs")
    args = parser.parse_args(argv)
    config = configured(args)
    from stateward.campaign.layout import RunDir, selected_tasks, selector_file
    from stateward.difficulty import curate
    from stateward.difficulty.lists import refuse_overlap

    refuse_overlap(selector_file(config, config.tasks.train), selector_file(config, config.tasks.benchmark))
    pool = curate.run(
        config,
        [Path(p) for p in args.input or [RunDir(Path(config.run_dir)).probe]],
        tasks=selected_tasks(config, config.tasks.train),
        benchmark=selected_tasks(config, config.tasks.benchmark),
        dry_run=args.dry_run,
        unfinished=args.unfinished,
        replace=args.replace,
    )
    print("\n".join(pool.lines()))
    if args.dry_run:
        print(f"would write {pool.folder}")
        return 0
    print(f"{'wrote' if pool.changed else 'unchanged:'} {pool.folder}")
    print(f"next: python jobs/train.py --config {args.config} --run-dir {config.run_dir}")
    return 0


if __name__ == "__main__":
    entry(main)
