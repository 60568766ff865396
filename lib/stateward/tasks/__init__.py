"""The task format: read a ThinkingBox dataset and hydrate its tests into tasks."""

from stateward.tasks.dataset import load_tasks
from stateward.tasks.selectors import read_selectors
from stateward.tasks.task import Check, FixtureSpec, ServerSpec, Task, ToolPolicy, ToolSpec

__all__ = [
    "Check",
    "FixtureSpec",
    "ServerSpec",
    "Task",
    "ToolPolicy",
    "ToolSpec",
    "load_tasks",
    "read_selectors",
]
