"""Measure the figures, the page and the import on a campaign that `big_campaign.py` wrote.

    python tests/evaluation/big_campaign.py DIR --jsonl DIR/base.jsonl
    python tests/evaluation/measure.py DIR [figures] [page] [import] [compare]

Each is measured in a process of its own: seconds on the clock, CPU seconds (children included), peak memory.
`compare` runs the whole report's computation of both runs.
"""

from __future__ import annotations

import argparse
import resource
import shutil
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run_dir", type=Path)
    parser.add_argument("what", nargs="*", choices=list(WHAT))
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
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
