"""Report: the figures of a campaign's evaluations, compared if they can be. Writes RUN_DIR/report.

Exit status 1 says that a run is not complete, or that two runs could not be compared; the text says why.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from stateward.campaign.cli import DONE, INCOMPLETE, entry
from stateward.errors import UserError

PRICES = Path(__file__).parents[1] / "configs" / "prices.yaml"


def main(argv: Sequence[str] | None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run_dir", type=Path, metavar="RUN_DIR")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure to FILE as well")
    parser.add_argument("--trial", metavar="UID:INDEX", help="show one trial's conversation in every run, nothing else")
    parser.add_argument("--task", metavar="UID", help="write a page with all conversations of this task, nothing else")
    parser.add_argument(
        "--import", dest="imports", action="append", default=[], metavar="LABEL=FILE",
        help="first take in results of the public framework (JSONL) as the run LABEL",
    )  # fmt: skip
    parser.add_argument("--salvage", action="store_true", help="with --import: skip a broken last line")
    parser.add_argument("--export", metavar="LABEL=FILE", help="write a run as .jsonl or .csv, nothing else")
    parser.add_argument("--baseline", default="", metavar="LABEL", help="the run to compare with (default: base)")
    parser.add_argument(
        "--allow-difference", action="append", default=[], metavar="CONDITION", help="compare although this differs"
    )
    parser.add_argument(
        "--accept-duplicates",
        action="store_true",
        help="score trials that ran twice: the later attempt counts; of an --import: equal lines are different trials",
    )
    parser.add_argument(
        "--void-as-failure",
        action="store_true",
        help="score trials that were void as failed instead of asking for them",
    )
    parser.add_argument("--prices", type=Path, default=PRICES, metavar="FILE", help="default: configs/prices.yaml")
    parser.add_argument("--bootstrap", type=int, default=10_000, metavar="N", help="resamples (default 10,000)")
    args = parser.parse_args(argv)
    if args.bootstrap < 100:
        raise UserError(f"--bootstrap {args.bootstrap}: too few", "a 95 % interval needs some hundreds of resamples")
    if args.trial:
        from stateward.evaluation.find import show_trial

        print(show_trial(args.run_dir, args.trial))
        return DONE
    for text in args.imports:
        from stateward.evaluation.imports import import_results

        label, file = named_file(text, "--import")
        found = import_results(
            args.run_dir, label, file, salvage=args.salvage, accept_duplicates=args.accept_duplicates
        )
        skipped = ", a broken last line skipped" if found.skipped else ""
        print(f"imported {label}: {found.lines:,} results of {found.tasks} tasks, {found.voids} void{skipped}")
    if args.export:
        from stateward.evaluation.imports import export_run

        label, file = named_file(args.export, "--export")
        print(f"{file}: {export_run(args.run_dir, label, file):,} trials")
        return DONE
    from stateward.evaluation.report import ReportOptions, build, build_task, terminal

    options = ReportOptions(
        prices=args.prices,
        baseline=args.baseline,
        allow=args.allow_difference,
        accept_duplicates=args.accept_duplicates,
        void_as_failure=args.void_as_failure,
        resamples=args.bootstrap,
    )
    if args.task:
        print(f"written: {build_task(args.run_dir, args.task, options)}")
        return DONE
    report = build(args.run_dir, options)
    print(terminal(report))
    print(f"\nwritten: {args.run_dir / 'report'}/ (open report.html; report.md, report.json)")
    if args.json:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps(report.to_json(), indent=1, allow_nan=False), encoding="utf-8")
    return DONE if report.complete else INCOMPLETE


def named_file(text: str, option: str) -> tuple[str, Path]:
    """LABEL=FILE as its parts."""
    label, equals, file = text.partition("=")
    if not (label and equals and file) or "/" in label:
        raise UserError(f"{option} {text}: not LABEL=FILE", do=f"for instance {option} base=results.jsonl")
    return label, Path(file)


if __name__ == "__main__":
    entry(main)
