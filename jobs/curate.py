"""Curate: choose the tasks that can teach the policy, and prove that the benchmark is not among them.

Reads RUN_DIR/probe, or every --input (run directories, stage directories, JSONL files). Writes RUN_DIR/pool: selector
lists, one line a task with the reason for its decision, the evidence against contamination, a manifest and plots.

Results from elsewhere: --input results.jsonl curate.fields.uid=task.id curate.fields.success=result.passed
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from stateward.campaign.cli import DONE, configured, entry, stage_parser
from stateward.config import Config


def main(argv: Sequence[str] | None) -> int:
    parser = stage_parser(__doc__ or "")
    parser.add_argument(
        "--input", action="append", metavar="PATH", help="probe results; may be repeated (default: RUN_DIR/probe)"
    )
    parser.add_argument(
        "--reprobe",
        action="append",
        metavar="PATH",
        help="results of a later policy on the pool: show which tasks left the useful bands, in RUN_DIR/drift",
    )
    parser.add_argument("--label", default="", help="with --reprobe: name of its folder (default: the later policy)")
    parser.add_argument("--unfinished", action="store_true", help="take a probe that has not ended")
    parser.add_argument("--replace", action="store_true", help="replace a pool that was made from other inputs")
    args = parser.parse_args(argv)
    config = configured(args)
    return _reprobe(config, args) if args.reprobe else _curate(config, args)


def _curate(config: Config, args: argparse.Namespace) -> int:
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
    _written(pool.folder, pool.changed, args.dry_run)
    if not args.dry_run:
        print(f"next: python jobs/train.py --config {args.config} --run-dir {config.run_dir}")
    return DONE


def _reprobe(config: Config, args: argparse.Namespace) -> int:
    from stateward.difficulty.drift import reprobe

    inputs = [Path(p) for p in args.reprobe]
    drift = reprobe(config, inputs, label=args.label, dry_run=args.dry_run, unfinished=args.unfinished)
    print("\n".join(drift.lines()))
    _written(drift.folder, drift.changed, args.dry_run)
    if not args.dry_run:
        print(f"next: tasks.train={drift.folder / 'train.yaml'} holds the tasks that are still useful")
    return DONE


def _written(folder: Path, changed: bool, dry_run: bool) -> None:
    print(f"would write {folder}" if dry_run else f"{'wrote' if changed else 'unchanged:'} {folder}")


if __name__ == "__main__":
    entry(main)
