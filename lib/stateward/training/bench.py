"""What training costs: ``python -m stateward.training.bench``.

phases RUN_DIR     seconds of a step by phase, from the run's metrics.jsonl
step               whole steps with our episode loop and with Verl's single-turn loop, in turn, with the same tokens
loop               the sampling phase alone: both loops with the same tokens on the same engine
cpu                what both loops cost outside the engine
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stateward.errors import UserError, program
from stateward.training.figures import read_lines
from stateward.training.paths import TrainPaths
from stateward.training.plan import TrainPlan

#: Phases of a step in their order; `step` is the whole.
_PHASES = ("sample", "log_prob", "advantage", "update", "save", "synchronise")

_EPISODE = ("open", "sample", "tools", "user", "grade", "total")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    phases = commands.add_parser("phases", help="seconds of a step by phase")
    phases.add_argument("run_dir", type=Path, metavar="RUN_DIR")
    step = commands.add_parser("step", help="whole steps with our episode loop and with Verl's single-turn loop")
    loop = commands.add_parser("loop", help="the sampling phase alone, with our episode loop and with Verl's")
    cpu = commands.add_parser("cpu", help="what both cost outside the engine")
    for command in (step, loop, cpu):
        command.add_argument("--config", default="configs/practice.yaml", metavar="FILE")
        command.add_argument("--groups", type=int, default=8, metavar="N", help="groups a round (default: 8)")
        command.add_argument("--size", type=int, default=8, metavar="N", help="episodes a group (default: 8)")
    loop.add_argument(
        "--tokens", type=int, nargs="+", default=[64, 512], metavar="N", help="sampled tokens an episode (64 and 512)"
    )
    loop.add_argument("--rounds", type=int, default=10, metavar="N", help="rounds of each loop (default: 10)")
    step.add_argument(
        "--tokens", type=int, nargs="+", default=[52, 152], metavar="N", help="sampled tokens an episode (52 and 152)"
    )
    step.add_argument("--steps", type=int, default=6, metavar="N", help="counted steps of each loop (default: 6)")
    step.add_argument(
        "--replaced", type=int, default=4, metavar="N", help="groups a step without a signal (default: 4)"
    )
    args = parser.parse_args(argv)
    if args.command == "phases":
        print("\n".join(phase_table(read_lines(TrainPaths.of(args.run_dir).metrics))))
    elif args.command == "step":
        for tokens, lines in measure_steps(args).items():
            print("\n".join([f"{tokens} sampled tokens an episode", "", *step_table(lines), ""]))
    elif args.command == "loop":
        for found in measure_loops(args)["lengths"]:
            print("\n".join([*loop_table(found, args.groups, args.size), ""]))
    else:
        from stateward.training.bench_cpu import measure_cpu, table

        plan, uids, folder = _prepared(args, tokens=64)
        print("\n".join(table(measure_cpu(plan, uids, args.size, 64))))
        shutil.rmtree(folder)
    return 0


def phase_table(lines: Sequence[dict[str, Any]]) -> list[str]:
    """Markdown rows: median, shortest and longest seconds of each phase, its share of all steps; then what an episode
    does while the step samples. Its grading is the reward: no phase of a step is left for it.

    Raises:
        UserError: no step was trained.
    """
    if not lines:
        raise UserError("no step in metrics.jsonl", do="name the run directory of a training")
    whole = [line["seconds"]["step"] for line in lines]
    rows = [f"{len(lines)} steps", "", "| phase | median s | shortest | longest | share |", "|---|---:|---:|---:|---:|"]
    for phase in (*_PHASES, "step"):
        found = [line["seconds"][phase] for line in lines if phase in line["seconds"]]
        if found:
            share = sum(found) / sum(whole)
            rows.append(
                f"| {phase} | {statistics.median(found):.2f} | {min(found):.2f} | {max(found):.2f} | {share:.0%} |"
            )
    episode = {name: statistics.median(line["episode_seconds"][name] for line in lines) for name in _EPISODE}
    return [*rows, "", "an episode, median s: " + ", ".join(f"{name} {value:.3f}" for name, value in episode.items())]


def step_table(lines: Sequence[dict[str, Any]]) -> list[str]:
    """Markdown rows of steps that `bench_steps` trained, each with its ``loop``: median seconds of a phase with either
    loop, and what ours took more. The overhead is the median over pairs of neighbouring steps.
    """
    by_loop = {name: [line["seconds"] for line in lines if line["loop"] == name] for name in ("verl", "ours")}
    episodes = statistics.median(line["episodes_run"] for line in lines)
    rows = [
        f"{len(by_loop['ours'])} steps of each loop, {episodes:.0f} episodes run a step",
        "",
        "| phase | Verl's loop, median s | shortest | longest | ours, median s | shortest | longest | ours more, s |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for phase in (*_PHASES, "step"):
        verls, own = ([seconds[phase] for seconds in by_loop[name]] for name in ("verl", "ours"))
        more = statistics.median(own) - statistics.median(verls)
        rows.append(f"| {phase} | {_spread(verls)} | {_spread(own)} | {more:+.2f} |")
    pairs = list(zip(by_loop["ours"], by_loop["verl"], strict=True))
    over = {p: [own[p] / plain[p] - 1 for own, plain in pairs] for p in ("step", "sample")}
    for phase, values in over.items():
        rows += [
            "",
            f"overhead of {phase}: {statistics.median(values):+.1%} ({min(values):+.1%} to {max(values):+.1%})",
        ]
    return rows


def _prepared(
    args: argparse.Namespace, tokens: int, replaced: int = 0, more: Sequence[str] = ()
) -> tuple[TrainPlan, list[str], str]:
    """A written plan whose episodes have one turn of at most `tokens` tokens, its tasks, and its folder.

    The folder stays after a failure: its logs are named.
    """
    from stateward.campaign.layout import model_path, selected_tasks
    from stateward.config import load_config
    from stateward.training.launch import write_plan
    from stateward.training.plan import plan_training

    folder = tempfile.mkdtemp(prefix="stateward-bench-")
    asked = [
        f"run_dir={folder}/run",
        f"train.groups_per_step={args.groups}",
        f"train.group_size={args.size}",
        f"sampling.max_tokens_per_turn={tokens}",
        f"episode.concurrency={args.groups * args.size}",
        "episode.max_agent_turns=1",
        *more,
    ]
    config = load_config(args.config, asked)
    wanted = args.groups + replaced
    pool = selected_tasks(config, config.tasks.train)[:wanted]
    if len(pool) < wanted:
        raise UserError(f"{wanted} groups a step", f"{config.tasks.train} has {len(pool)} tasks")
    plan = plan_training(config, config.run_dir, model_path(config))
    write_plan(plan, "bench", pool, start=1)
    return plan, [task.uid for task in pool], folder


def measure_steps(args: argparse.Namespace) -> dict[int, list[dict[str, Any]]]:
    """Train with either loop in turn; by sampled tokens, the counted steps' lines of figures with their ``loop``.

    The first step of each loop with each length is not counted: it opens snapshots and compiles.
    """
    from stateward.training.bench_loops import loop_of

    each = 2 * (args.steps + 1)
    more = [f"train.steps={each * len(args.tokens)}", "train.save_every=1"]
    plan, _, folder = _prepared(args, max(args.tokens), args.replaced, more)
    asked = {"tokens": args.tokens, "steps": each, "replaced": args.replaced}
    _in_private_ray(plan, folder, asked, "stateward.training.bench_steps")
    lines = read_lines(plan.paths.metrics)
    shutil.rmtree(folder)
    for line in lines:
        line["loop"] = loop_of(line["step"])
    return {tokens: lines[i * each + 2 : (i + 1) * each] for i, tokens in enumerate(args.tokens)}


def measure_loops(args: argparse.Namespace) -> dict[str, Any]:
    """Run both loops in a private Ray on the practice platform; what `bench_loops` wrote."""
    from stateward.training import bench_loops

    plan, uids, folder = _prepared(args, tokens=max(args.tokens))
    asked = {"uids": uids, "size": args.size, "tokens": args.tokens, "rounds": args.rounds}
    found = _in_private_ray(plan, folder, asked, bench_loops.__name__)
    shutil.rmtree(folder)
    return found


def _in_private_ray(plan: TrainPlan, folder: str, asked: dict[str, Any], module: str) -> dict[str, Any]:
    """Run the driver `module` with what is `asked`; what it wrote."""
    from stateward.training import bench_loops
    from stateward.training.launch import drive, local_ray

    order, result = Path(folder) / "asked.json", Path(folder) / "found.json"
    order.write_text(json.dumps({**asked, "result": str(result)}))
    os.environ[bench_loops.ASKED] = str(order)
    with local_ray(plan) as node:
        drive(plan, node, module=module)
    found: dict[str, Any] = json.loads(result.read_text())
    return found


def loop_table(found: dict[str, Any], groups: int, size: int) -> list[str]:
    """What was measured with one length, and the overhead: the median over rounds of our seconds over Verl's, less 1.

    Processor time is that of all processes of the run, and says more on a machine that others use.
    """
    rounds, prompts = found["rounds"], found["prompt_tokens"]
    rows = [
        f"{len(rounds)} rounds of {groups} groups of {size} episodes of {found['tokens']} sampled tokens",
        "",
        "| loop | prompt tokens, mean | clock, median s | shortest | longest | CPU, median s | shortest | longest |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for name, title in (("verl", "Verl's single turn"), ("ours", "ours, with world and grading")):
        spread = " | ".join(_spread([row[name][kind] for row in rounds]) for kind in ("clock", "cpu"))
        rows.append(f"| {title} | {prompts[name]:.0f} | {spread} |")
    over = {k: statistics.median(row["ours"][k] / row["verl"][k] for row in rounds) - 1 for k in ("clock", "cpu")}
    parts = {name: _cpu_parts([row[name] for row in rounds], groups * size) for name in ("verl", "ours")}
    phases = {name: statistics.median(row["phases"][name] for row in rounds) for name in rounds[0]["phases"]}
    return [
        *rows,
        "",
        f"overhead: clock {over['clock']:+.1%}, CPU {over['cpu']:+.1%} (medians over the rounds)",
        f"CPU an episode, median ms, Verl's: {parts['verl']}; ours: {parts['ours']}",
        "an episode of ours, seconds: " + ", ".join(f"{name} {value:.3f}" for name, value in phases.items()),
    ]


def _cpu_parts(costs: Sequence[dict[str, float]], episodes: int) -> str:
    """Where the processor time of a round went, as milliseconds an episode."""
    rest = [cost["cpu"] - cost["loop"] - cost["worlds"] for cost in costs]
    parts = {
        "engine and Ray": rest,
        "the loop's process": [cost["loop"] for cost in costs],
        "worlds and grading": [cost["worlds"] for cost in costs],
    }
    return ", ".join(f"{name} {1000 * statistics.median(values) / episodes:.1f}" for name, values in parts.items())


def _spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.2f} | {min(values):.2f} | {max(values):.2f}"


if __name__ == "__main__":
    program(main)
