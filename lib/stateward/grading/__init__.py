"""Run a task's check on the final state, in a bounded process.

The names are loaded when they are asked for: the warm grader is a process of this package too, and every module that it
does not load makes its forks cheaper.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stateward.grading.grader import Grader
    from stateward.grading.values import Evidence, Grade, GradeLimits, JudgeModel

__all__ = ["Evidence", "Grade", "GradeLimits", "Grader", "JudgeModel"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{'grader' if name == 'Grader' else 'values'}"), name)
