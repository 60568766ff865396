"""Evaluation: exact coverage, honest intervals, comparable runs, costs, and the report."""

from stateward.evaluation.coverage import Coverage, coverage, missing_trials
from stateward.evaluation.plan import Plan, plan_of_stage

__all__ = ["Coverage", "Plan", "coverage", "missing_trials", "plan_of_stage"]
