"""What worlds cost: time by phase, CPU, memory, throughput, and whether they stay flat (docs/performance.md).

    python -m stateward.sandbox.bench TASKS [--calls FILE] [--json FILE] [--soak 10000]

TASKS is a list of ``file.py:test_name``. Every episode opens a world, lists its tools, makes five calls, extracts the
state, grades it and destroys the world; no model takes part. With ``--calls`` the calls are those of a YAML file {uid:
[{tool: arguments}, {say: text}, ...]}, repeated in order until there are five, and the last text is the response;
otherwise they are made up from the tools' schemas.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import platform
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stateward.errors import StatewardError
from stateward.grading import Evidence, Grader
from stateward.sandbox import Sandbox, SandboxLimits, World
from stateward.sandbox.figures import memory_mb, percentile, process_tree, tree_cpu_seconds
from stateward.sandbox.scripts import Call, Script, read_scripts
from stateward.tasks import Task, ToolSpec, load_tasks

CONCURRENCIES = (1, 4, 16, 64)
CALLS = 5
FIGURES = ("create_p95_ms", "burst_p95_ms", "episodes_per_s", "cpu_ms_per_episode", "private_mb_per_world")
PHASES = ("create", "list", "call", "extract", "grade", "destroy")
SOAK_CONCURRENCY = 16
SOAK_WINDOW = 1_000


@dataclass
class Measured:
    """Seconds by phase of every episode, in the order in which the episodes ended."""

    phases: dict[str, list[float]] = field(default_factory=lambda: {phase: [] for phase in (*PHASES, "episode")})
    outcomes: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    cpu_seconds: float = 0.0

    @contextlib.contextmanager
    def clock(self, phase: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self.phases[phase].append(time.perf_counter() - began)

    @property
    def episodes(self) -> int:
        return sum(self.outcomes.values())


class Bench:
    """Runs episodes of `tasks` in turn on one sandbox and one grader."""

    def __init__(self, sandbox: Sandbox, grader: Grader, tasks: Sequence[Task], scripts: dict[str, Script]) -> None:
        self.sandbox, self.grader, self.tasks, self.scripts = sandbox, grader, tasks, scripts

    async def warm(self) -> None:
        """Open every task once, so that what follows measures worlds and not imports and snapshots."""
        await self.run(len(self.tasks), 4)

    async def run(self, episodes: int, concurrency: int) -> Measured:
        """Episodes in a closed loop: `concurrency` of them are under way at any time."""
        measured, numbers = Measured(), iter(range(episodes))
        cpu, began = tree_cpu_seconds(os.getpid()), time.perf_counter()

        async def worker() -> None:
            for number in numbers:
                with measured.clock("episode"):
                    await self.episode(self.tasks[number % len(self.tasks)], measured)

        await asyncio.gather(*(worker() for _ in range(concurrency)))
        measured.seconds = time.perf_counter() - began
        measured.cpu_seconds = tree_cpu_seconds(os.getpid()) - cpu
        return measured

    async def episode(self, task: Task, measured: Measured) -> None:
        with measured.clock("create"):
            world = await self.sandbox.open(task)
        try:
            with measured.clock("list"):
                json.dumps([tool.to_openai() for tool in world.tools])
            made = []
            script = self.script_of(task, world)
            for number, (name, arguments) in enumerate(script.calls):
                with measured.clock("call"):
                    result = await world.call(name, arguments, call_id=f"{number}")
                made.append({"name": name, "arguments": arguments, "result": result.text, "is_error": result.is_error})
            with measured.clock("extract"):
                effects = await world.state()
            with measured.clock("grade"):
                evidence = Evidence(
                    response=script.response, tool_calls=made, effects=effects, init_result=world.init_result
                )
                grade = await self.grader.grade(task.check, evidence)
            # A check that needs the judge is void here, for want of one; anything else that is void is our fault.
            measured.outcomes["judge" if grade.fault_kind == "judge" else grade.outcome.value] += 1
            if grade.fault_kind not in ("", "judge"):
                print(f"{task.uid}: {grade.fault_cause}", file=sys.stderr)
        finally:
            with measured.clock("destroy"):
                await world.aclose()

    def script_of(self, task: Task, world: World) -> Script:
        script = self.scripts.get(task.uid) or Script([])
        calls = script.calls or [made_up(tool) for tool in world.tools]
        return Script(list(itertools.islice(itertools.cycle(calls), CALLS)), script.response)

    async def at_once(self, concurrency: int) -> tuple[float, float]:
        """`concurrency` worlds of one task opened at the same moment, as a training step does it.

        Returns:
            The 95th percentile of their opening in milliseconds, and the mean unshared memory in MB of a world's
            processes while all of them live, after five calls each.
        """
        task, seconds = self.tasks[0], []

        async def opened() -> World:
            began = time.perf_counter()
            world = await self.sandbox.open(task)
            seconds.append(time.perf_counter() - began)
            return world

        worlds = await asyncio.gather(*(opened() for _ in range(concurrency)))
        try:
            for world in worlds:
                for k, (name, arguments) in enumerate(self.script_of(task, world).calls):
                    await world.call(name, arguments, call_id=f"{k}")
            used = [sum(memory_mb(pid, "Private_Clean", "Private_Dirty") for pid in world.pids) for world in worlds]
        finally:
            await asyncio.gather(*(world.aclose() for world in worlds))
        return 1e3 * percentile(seconds, 0.95), sum(used) / len(used)


def made_up(tool: ToolSpec) -> Call:
    """A call that the tool's schema allows, as far as its types say."""
    samples: dict[str, Any] = {"integer": 1, "number": 1.0, "boolean": True, "array": [], "object": {}}
    properties = tool.input_schema.get("properties", {})
    arguments = {
        name: (schema.get("enum") or [samples.get(schema.get("type", "string"), "x")])[0]
        for name in tool.input_schema.get("required", [])
        for schema in [properties.get(name, {})]
    }
    return tool.name, arguments


@contextlib.asynccontextmanager
async def opened(tasks: Sequence[Task], scripts: dict[str, Script]) -> AsyncIterator[Bench]:
    limits = SandboxLimits(max_worlds=max(CONCURRENCIES), max_snapshots=max(64, len(tasks)))
    async with Sandbox(limits) as sandbox, Grader() as grader:
        bench = Bench(sandbox, grader, tasks, scripts)
        await bench.warm()
        yield bench


async def measure(tasks: Sequence[Task], scripts: dict[str, Script], episodes: int, soak: int) -> dict[str, Any]:
    """The figures, each with its concurrency; printed as they come."""
    figures: dict[str, Any] = {
        "tasks": len(tasks),
        "cores": len(os.sched_getaffinity(0)),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "phases_ms": {},
        "outcomes": {},
        **{name: {} for name in FIGURES},
    }
    async with opened(tasks, scripts) as bench:
        for name, how in bench.sandbox.explain().items():
            print(f"server {name}: {how}")
        print(f"{'worlds':>6} {'phase':>8} {'p50 ms':>8} {'p95 ms':>8}")
        for concurrency in CONCURRENCIES:
            measured = await bench.run(max(episodes, 4 * concurrency), concurrency)
            key = str(concurrency)
            figures["phases_ms"][key] = phases = {
                name: {"p50": 1e3 * percentile(seconds, 0.5), "p95": 1e3 * percentile(seconds, 0.95)}
                for name, seconds in measured.phases.items()
            }
            figures["outcomes"][key] = dict(measured.outcomes)
            figures["create_p95_ms"][key] = phases["create"]["p95"]
            figures["episodes_per_s"][key] = measured.episodes / measured.seconds
            figures["cpu_ms_per_episode"][key] = 1e3 * measured.cpu_seconds / measured.episodes
            figures["burst_p95_ms"][key], figures["private_mb_per_world"][key] = await bench.at_once(concurrency)
            for name, value in phases.items():
                print(f"{concurrency:>6} {name:>8} {value['p50']:>8.2f} {value['p95']:>8.2f}")
            print(
                f"{concurrency:>6} {figures['episodes_per_s'][key]:.1f} episodes/s, "
                f"{figures['cpu_ms_per_episode'][key]:.1f} ms CPU an episode, "
                f"{figures['private_mb_per_world'][key]:.2f} MB unshared a world, "
                f"{figures['burst_p95_ms'][key]:.1f} ms p95 to open all at once, outcomes {dict(measured.outcomes)}"
            )
        if soak:
            figures |= await soak_figures(bench, soak)
    return figures


async def soak_figures(bench: Bench, episodes: int) -> dict[str, Any]:
    """Latency of the last and the first episodes of a long run, and the memory of all that outlives an episode."""
    window = min(SOAK_WINDOW, episodes // 2)

    def resident() -> float:
        return sum(memory_mb(pid, "Private_Clean", "Private_Dirty") for pid in process_tree(os.getpid()))

    first = await bench.run(window, SOAK_CONCURRENCY)
    before = resident()
    measured = await bench.run(episodes - window, SOAK_CONCURRENCY)
    after = resident()
    starts = percentile(first.phases["episode"], 0.95)
    ends = percentile(measured.phases["episode"][-window:], 0.95)
    key = str(SOAK_CONCURRENCY)
    outcomes = first.outcomes + measured.outcomes
    print(
        f"soak: {episodes} episodes at {key}: p95 {1e3 * starts:.1f} ms of the first {window}, {1e3 * ends:.1f} ms of "
        f"the last; {before:.1f} MB, then {after:.1f} MB of lasting processes; outcomes {dict(outcomes)}"
    )
    return {
        "soak_episodes": episodes,
        "soak_p95_ratio": {key: ends / starts},
        "soak_memory_mb": {key: [before, after]},
        "soak_outcomes": {key: dict(outcomes)},
    }


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m stateward.sandbox.bench", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("tasks", type=Path, metavar="TASKS", help="a YAML list of file.py:test_name")
    parser.add_argument("--dataset", type=Path, metavar="DIR", help="the dataset's folder (default: that of TASKS)")
    parser.add_argument("--agent", default="default", metavar="NAME", help="agent/NAME.yaml")
    parser.add_argument(
        "--calls", type=Path, metavar="FILE", nargs="+", default=[], help="YAML {uid: [{tool: arguments}, {say: text}]}"
    )
    parser.add_argument("--limit", type=int, metavar="N", help="only the first N tasks")
    parser.add_argument("--episodes", type=int, default=400, metavar="N", help="at each concurrency (default 400)")
    parser.add_argument("--soak", type=int, default=0, metavar="N", help="episodes of the long run (default: none)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    args = parser.parse_args(argv)
    try:
        tasks = load_tasks(args.dataset or args.tasks.parent, args.tasks, agent=args.agent)[: args.limit]
        scripts = {uid: script for path in args.calls for uid, script in read_scripts(path).items()}
        figures = asyncio.run(measure(tasks, scripts, args.episodes, args.soak))
    except StatewardError as error:
        print(error, file=sys.stderr)
        return 2
    figures["command"] = " ".join(["python -m stateward.sandbox.bench", *(argv if argv is not None else sys.argv[1:])])
    if args.json:
        args.json.write_text(json.dumps(figures, indent=1) + "\n")
    counts = [*figures["outcomes"].values(), *figures.get("soak_outcomes", {}).values()]
    return 1 if any(count.get("void") for count in counts) else 0


if __name__ == "__main__":
    sys.exit(main())
