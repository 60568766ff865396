"""How much curtailed probing saves, and how fast a million rows are curated. The table of docs/performance.md.

    python -m stateward.difficulty.bench --json FILE

Tasks' success rates are drawn from the population of the published base policy; each task's trials are drawn from its
rate; the rules then read the same trials, one by one.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from stateward.difficulty.bands import PROFILES, Bands
from stateward.difficulty.bench_rows import ROWS, write_records, write_rows
from stateward.difficulty.posterior import band_index
from stateward.difficulty.stopping import build_rule
from stateward.difficulty.walk import POPULATION

TASKS = 20_000
PLANS = (8, 16)
BOUNDED_ERROR = 0.02
RULES = ("kept", "band", "bounded")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m stateward.difficulty.bench", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    parser.add_argument("--tasks", type=int, default=TASKS, metavar="N", help=f"tasks to draw (default {TASKS})")
    parser.add_argument("--rows", type=int, default=ROWS, metavar="N", help="probe rows to curate; 0 leaves that out")
    parser.add_argument("--seed", type=int, default=42)
    args = parser.parse_args(argv)
    figures: dict[str, Any] = {"tasks": args.tasks, "seed": args.seed, "population": list(POPULATION)}
    rates, trials = draw(args.tasks, args.seed)
    figures["base_policy"] = base_policy(rates, args.seed)
    figures["rules"] = compare_rules(rates, trials)
    print("\n".join(rule_table(figures)))
    if args.rows:
        figures["curation"] = time_curation(args.rows)
        print("\n".join(curation_table(figures["curation"])))
    if args.json:
        args.json.write_text(json.dumps(figures, indent=1) + "\n")
    return 0


def draw(tasks: int, seed: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    """Success rates [tasks], and outcomes [tasks, max(PLANS)] of trials with these rates."""
    random = np.random.default_rng(seed)
    rates = random.beta(*POPULATION, size=tasks)
    return rates, random.random((tasks, max(PLANS))) < rates[:, None]


def base_policy(rates: npt.NDArray[np.float64], seed: int) -> dict[str, float]:
    """What 20 trials of each task show: mean success, and shares of tasks that always and never succeed."""
    passed = np.random.default_rng(seed + 1).binomial(20, rates)
    return {
        "mean": float(passed.mean() / 20),
        "always": float((passed == 20).mean()),
        "never": float((passed == 0).mean()),
    }


def compare_rules(rates: npt.NDArray[np.float64], trials: npt.NDArray[np.bool_]) -> list[dict[str, Any]]:
    """One row per profile, n and rule: trials run as a share of n, and decisions that differ from those at n."""
    rows = []
    tasks = len(trials)
    at = np.arange(tasks)
    for profile in PROFILES:
        bands = Bands.profile(profile)
        truly_kept = bands.kept[bands.index_of(rates)]
        for n in PLANS:
            passes = np.concatenate([np.zeros((tasks, 1), int), trials[:, :n].cumsum(axis=1)], axis=1)
            fixed = bands.kept[band_index(passes[:, n], np.full(tasks, n), bands)]
            for name in RULES:
                rule = build_rule(bands, trials=n, rule=name, bounded_error=BOUNDED_ERROR)
                used = rule.stop[passes, np.arange(n + 1)].argmax(axis=1)
                kept = rule.verdicts[passes[at, used], used] == 1
                rows.append(
                    {
                        "profile": profile,
                        "trials": n,
                        "rule": name,
                        "share": float(used.mean() / n),
                        "share_expected": rule.expected_trials() / n,
                        "share_least": rule.least_trials(BOUNDED_ERROR if name == "bounded" else 0.0) / n,
                        "differs": float((kept != fixed).mean()),
                        "differs_expected": rule.error(),
                        "differs_worst_rate": rule.worst_error(),
                        "identical_pool": bool((kept == fixed).all()),
                        "kept": int(kept.sum()),
                        "kept_fixed": int(fixed.sum()),
                        "against_truth": float((kept != truly_kept).mean()),
                        "against_truth_fixed": float((fixed != truly_kept).mean()),
                    }
                )
    return rows


def time_curation(rows: int) -> list[dict[str, Any]]:
    """Seconds and peak memory of curating `rows` probe rows, each in a fresh process, guard and plots included."""
    out = []
    with tempfile.TemporaryDirectory(prefix="curate-bench-") as folder:
        for kind, write in (("jsonl", write_rows), ("records", write_records)):
            place = Path(folder) / kind
            print(f"writing {rows:,} rows as {kind} ...", file=sys.stderr, flush=True)
            write(place, rows)
            command = [sys.executable, "-m", "stateward.difficulty.bench_rows", str(place), str(rows)]
            began = time.perf_counter()
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            out.append({"kind": kind, "process_seconds": time.perf_counter() - began, **json.loads(done.stdout)})
    return out


def rule_table(figures: dict[str, Any]) -> list[str]:
    """Markdown."""
    base = figures["base_policy"]
    lines = [
        f"{figures['tasks']:,} tasks, seed {figures['seed']}: mean success {base['mean']:.1%};"
        f" of 20 trials, {base['always']:.1%} of tasks always and {base['never']:.1%} never succeed.",
        "",
        "| profile | n | rule | trials | expected | no rule below | decisions that differ | expected | pool |",
        "|---|---:|---|---:|---:|---:|---:|---:|---|",
    ]
    for r in figures["rules"]:
        least = "" if r["rule"] == "band" else f"{r['share_least']:.1%}"
        pool = "identical" if r["identical_pool"] else f"{r['kept']} for {r['kept_fixed']}"
        cells = [r["profile"], r["trials"], r["rule"], f"{r['share']:.1%}", f"{r['share_expected']:.1%}", least]
        cells += [f"{r['differs']:.2%}", f"{r['differs_expected']:.2%}", pool]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return lines


def curation_table(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Markdown."""
    lines = [
        "",
        "| rows | from | tasks | curate | of it CPU | whole process | peak memory |",
        "|---:|---|---:|---:|---:|---:|---:|",
    ]
    for r in rows:
        lines.append(
            f"| {r['rows']:,} | {r['kind']} | {r['tasks']:,} | {r['seconds']:.2f} s | {r['cpu_seconds']:.2f} s |"
            f" {r['process_seconds']:.2f} s | {r['peak_mb']:,.0f} MB |"
        )
    return lines


if __name__ == "__main__":
    sys.exit(main())
