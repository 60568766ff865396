"""Play tasks without a model, to see whether they are what they should be: their calls pass, and doing nothing fails.

    python -m stateward.sandbox.play TASKS --calls FILE [--dataset DIR] [--agent NAME] [--only UID]

TASKS is a list of ``file.py:test_name``, FILE a YAML of {uid: [{tool: arguments}, {say: text}, ...]}. Shows each call
with its answer, what changed in the state, and the outcome of both episodes. A check that asks a judge is void here,
once the state was found right. The exit status is 1 unless every task passes with its calls, or only lacks a judge, and
fails without them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from stateward.errors import StatewardError, SystemFault, UserError
from stateward.grading import Evidence, Grade, Grader
from stateward.outcome import Outcome
from stateward.sandbox import Sandbox, World, replay_history, state_diff
from stateward.sandbox.scripts import Script, read_scripts
from stateward.tasks import Task, load_tasks

_SHOWN = 160  # characters of an answer, a value or a cause


async def play(sandbox: Sandbox, grader: Grader, task: Task, script: Script, *, show: bool) -> Grade:
    """The grade of one episode of the script's calls.

    Raises:
        SystemFault: the world could not be opened, or broke.
    """
    async with await sandbox.open(task) as world:
        await replay_history(task, world)
        made = []
        for number, (name, arguments) in enumerate(script.calls):
            result = await world.call(name, arguments, call_id=f"{number}")
            made.append({"name": name, "arguments": arguments, "result": result.text, "is_error": result.is_error})
            if show:
                mark = "error: " if result.is_error else ""
                print(f"  {name} {json.dumps(arguments, ensure_ascii=False)} → {mark}{_short(result.text)}")
        state = await world.state()
        if show:
            _show_changes(world, state)
        evidence = Evidence(
            response=script.response,
            messages=[{"role": "user", "content": task.query}, {"role": "assistant", "content": script.response}],
            tool_calls=made,
            effects=state,
            init_result=world.init_result,
            metadata=dict(task.metadata),
        )
        return await grader.grade(task.check, evidence)


async def play_all(tasks: Sequence[Task], scripts: dict[str, Script]) -> bool:
    """Both episodes of every task, shown; whether all are as they should be."""
    good = True
    async with Sandbox() as sandbox, Grader() as grader:
        for task in tasks:
            print(task.uid)
            try:
                grade = await play(sandbox, grader, task, scripts[task.uid], show=True)
                idle = await play(sandbox, grader, task, Script([]), show=False)
            except SystemFault as fault:
                print(f"  void: {fault}")
                good = False
                continue
            print(f"  with these calls: {_said(grade)}")
            print(f"  with none:        {_said(idle)}")
            good &= grade.outcome is Outcome.PASS or grade.fault_kind == "judge"
            good &= idle.outcome is Outcome.FAIL
        for name, how in sandbox.explain().items():
            print(f"server {name}: {how}")
    return good


def _show_changes(world: World, state: dict[str, object]) -> None:
    rows = state_diff(world.initial_state, state)
    for path, before, after in rows:
        print(f"  changed {path}: {_short(json.dumps(before))} → {_short(json.dumps(after))}")
    if not rows:
        print("  changed nothing")


def _said(grade: Grade) -> str:
    if grade.fault_kind:
        return f"void ({grade.fault_kind}): {_short(grade.fault_cause)}"
    if grade.failure:
        failure = grade.failure
        return f"fail at {failure['file']}:{failure['line']}: {failure['text']} {_short(failure['message'])}".rstrip()
    return grade.outcome.value


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN else line[:_SHOWN] + "…"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m stateward.sandbox.play", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("tasks", type=Path, metavar="TASKS", help="a YAML list of file.py:test_name")
    parser.add_argument("--calls", type=Path, metavar="FILE", nargs="+", required=True, help="YAML of calls by uid")
    parser.add_argument("--dataset", type=Path, metavar="DIR", help="the dataset's folder (default: that of TASKS)")
    parser.add_argument("--agent", default="default", metavar="NAME", help="agent/NAME.yaml")
    parser.add_argument("--only", metavar="UID", help="one of the tasks")
    args = parser.parse_args(argv)
    try:
        tasks = load_tasks(args.dataset or args.tasks.parent, args.tasks, agent=args.agent)
        tasks = [task for task in tasks if args.only in (None, task.uid)]
        scripts = {uid: script for path in args.calls for uid, script in read_scripts(path).items()}
        missing = [task.uid for task in tasks if task.uid not in scripts]
        if missing or not tasks:
            what = f"no calls for {', '.join(missing)}" if missing else f"{args.tasks} has no task {args.only!r}"
            raise UserError(what, do="write them into the file of --calls" if missing else "")
        return 0 if asyncio.run(play_all(tasks, scripts)) else 1
    except StatewardError as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
