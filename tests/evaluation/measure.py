"""Measure the figures, the page and the import on a campaign that `big_campaign.py` wrote.

    python tests/evaluation/big_campaign.py DIR --jsonl DIR/base.jsonl
    python tests/evaluation/measure.py DIR [figures] [page] [import] [compare]
    THINKINGBOX=/path/to/checkout python tests/evaluation/measure.py DIR --versus

Each is measured in a process of its own: seconds on the clock, CPU seconds (children included), peak memory.
`compare` runs the whole report's computation of both runs. `--versus` imports the JSONL and has the public framework's
aggregator read it, in turn, five times each or as often as it says, as whole processes from start to end.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

PRICES = Path(__file__).parents[2] / "configs" / "prices.yaml"


def figures(run_dir: Path) -> str:
    """From the sealed store to every figure of one run with its intervals: overall, by domain, usage, costs."""
    from stateward.evaluation.assess import summarize
    from stateward.evaluation.costs import load_prices
    from stateward.evaluation.run import load_run

    run = load_run(run_dir / "eval" / "base")
    summary = summarize(run, load_prices(PRICES), resamples=10_000, seed=42)
    return f"{len(run.records):,} episodes, pass@1 {summary.figures['pass@1'].value:.4f}"


def compare(run_dir: Path) -> str:
    from stateward.evaluation.gather import ReportOptions, compute

    report = compute(run_dir, ReportOptions(prices=PRICES))
    return f"{sum(len(run.records) for run in report.runs):,} episodes in {len(report.runs)} runs"


def page(run_dir: Path) -> str:
    from stateward.evaluation.gather import ReportOptions, compute
    from stateward.evaluation.page import report_page

    report = compute(run_dir, ReportOptions(prices=PRICES, resamples=1_000))
    html = report_page(report)
    (run_dir / "report.html").write_text(html, encoding="utf-8")
    return f"{len(html.encode()):,} bytes for {sum(len(run.records) for run in report.runs):,} episodes"


def import_(run_dir: Path) -> str:
    from stateward.evaluation.imports import import_results

    target = run_dir / "imported"
    shutil.rmtree(target, ignore_errors=True)
    found = import_results(target, "base", run_dir / "base.jsonl")
    return f"{found.lines:,} lines, {(run_dir / 'base.jsonl').stat().st_size / 1e6:.0f} MB"


WHAT = {"figures": figures, "compare": compare, "page": page, "import": import_}


def versus(run_dir: Path, pairs: int) -> None:
    ours = (
        "import sys; from pathlib import Path; from stateward.evaluation.imports import import_results;"
        " import_results(Path(sys.argv[1]), 'base', Path(sys.argv[2]))"
    )
    theirs = "from thinkingbox.cli.agg_main import agg; agg()"
    file, target = str(run_dir / "base.jsonl"), run_dir / "imported"
    commands = {"import": [ours, str(target), file], "aggregator": [theirs, file, "-f", "json"]}
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
    for turn in range(pairs + 1):
        for name, arguments in commands.items():
            shutil.rmtree(target, ignore_errors=True)
            start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run(
                [sys.executable, "-c", *arguments], cwd=os.environ["THINKINGBOX"], stdout=subprocess.DEVNULL, check=True
            )
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            if turn:  # the first warms the page cache
                found[name].append((time.perf_counter() - start, cpu))
    for name, rows in found.items():
        wall, cpu = (statistics.median(column) for column in zip(*rows, strict=True))
        print(f"{name}: median {wall:.2f} s, {cpu:.2f} CPU s")
    together = list(zip(found["import"], found["aggregator"], strict=True))
    for i, what in enumerate(("clock", "CPU")):
        ratios = sorted(a[i] / b[i] for a, b in together)
        print(
            f"import / aggregator, {what}: median {statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run_dir", type=Path)
    parser.add_argument("what", nargs="*", metavar="WHAT", help=", ".join(WHAT) + " (default: all)")
    parser.add_argument(
        "--versus", nargs="?", const=5, type=int, metavar="N", help="the import against the public aggregator, N times"
    )
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if unknown := set(args.what) - set(WHAT):
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    if args.versus:
        versus(args.run_dir.resolve(), args.versus)
        return
    if not args.here:
        for name in args.what or WHAT:
            subprocess.run([sys.executable, __file__, str(args.run_dir), name, "--here"], check=True)
        return
    (name,) = args.what
    for module in ("numpy", "h5py", "scipy.special", "stateward.evaluation.page"):
        __import__(module)  # not measured: 0.5 s of imports
    start, cpu = time.perf_counter(), time.process_time()
    said = WHAT[name](args.run_dir)
    wall, own = time.perf_counter() - start, time.process_time() - cpu
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    peak = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)) / 1024
    total = own + children.ru_utime + children.ru_stime
    print(f"{name}: {said}; {wall:.2f} s, {total:.2f} CPU s, peak {peak:.0f} MB")


if __name__ == "__main__":
    main()
