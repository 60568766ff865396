"""Everything besides the policy and the tasks that can change an outcome: two runs compare only if it is equal."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from stateward.config import Config, config_to_dict
from stateward.config.simulator import simulated, simulator_model
from stateward.outcome import fingerprint
from stateward.policy import policy_fingerprint
from stateward.tasks.task import Task

#: Parts of a settings dict that hold numbers of ours with no influence on an outcome that is not void.
_OPERATIONAL = {
    "concurrency",
    "max_retries",
    "timeout_seconds",
    "turn_seconds",
    "max_worlds",
    "idle_seconds",
    "api_key_env",
    "base_url",
    "require",  # of grading: with fewer layers nothing is graded
}


def settings_of(config: Config, *, max_model_len: int) -> dict[str, Any]:
    """The settings of a run; the `fingerprint` of this dict is `Trial.settings`.

    The tasks are not in it: they are an input of the stage (`tasks_fingerprint`), so that a longer list keeps the
    trials that were run while an edited task is noticed.
    """
    simulator = {"simulator": _simulator(config)} if simulated(config.episode) else {}
    return {
        "sampling": config_to_dict(config.sampling),
        "max_model_len": max_model_len,
        "tool_parser": config.policy.tool_parser,
        "reasoning_parser": config.policy.reasoning_parser,
        "agent": config.tasks.agent,
        "episode": _without_operational(config_to_dict(config.episode)),
        **simulator,
    }


def _simulator(config: Config) -> dict[str, Any]:
    """The model that plays the user or judges, by its content, and how it is served."""
    settings = config_to_dict(config.simulator)
    names = ("max_model_len", "dtype", "tensor_parallel", "extra")
    return {"model": policy_fingerprint(simulator_model(config.simulator), ())} | {
        name: settings[name] for name in names
    }


def tasks_fingerprint(tasks: Iterable[Task]) -> str:
    """Identity of a set of tasks by content, independent of their order."""
    return fingerprint(sorted(task_fingerprint(task) for task in tasks))


def task_fingerprint(task: Task) -> str:
    """Identity of a task's content: what the policy sees, the world it acts on, and the check."""
    return fingerprint(
        {
            "uid": task.uid,
            "system": task.system,
            "query": task.query,
            "format_query": task.format_query,
            "user_context": task.user_context,
            "history": task.history,
            "world": task.world,
            "servers": [[s.name, s.kind, *(Path(part).name for part in s.command[1:])] for s in task.servers],
            "tools": [asdict(tool) for tool in task.tools],
            "builtin": [asdict(tool) for tool in task.builtin_tools],
            "end_turn": sorted(task.end_turn_tools),
            "check": [task.check.function, task.check.source, [asdict(f) for f in task.check.fixtures]],
            "limits": [task.max_user_turns, task.max_agent_turns],
        }
    )


def _without_operational(node: dict[str, Any]) -> dict[str, Any]:
    return {
        key: _without_operational(value) if isinstance(value, dict) else value
        for key, value in node.items()
        if key not in _OPERATIONAL
    }
