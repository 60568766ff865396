"""Run a task's check on the final state, in a bounded process."""

from stateward.grading.grader import Grader
from stateward.grading.values import Evidence, Grade, GradeLimits, JudgeModel

__all__ = ["Evidence", "Grade", "GradeLimits", "Grader", "JudgeModel"]
