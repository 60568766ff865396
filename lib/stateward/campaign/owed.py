"""What a sampling stage still owes: planned trials that are absent from its store or void there."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from stateward.campaign.sampling import SamplingPlan, Shard, stored
from stateward.errors import UserError
from stateward.outcome import Outcome
from stateward.store import Stage
from stateward.store.starts import DO, WHY, mixed_starts


def missing_trials(plan: SamplingPlan) -> tuple[dict[str, int], list[str]]:
    """Counts over the stage's store, and the trials that are still owed, as ``uid#index``.

    Counts: planned, stored, passes, fails, voids, and `saved` (trials that the stop rule made unnecessary).
    """
    from stateward.difficulty import stop_rule

    rule = None if plan.stop_rule == "fixed" else stop_rule(plan.stop_rule, plan.config.probe, plan.config.curate.bands)
    outcomes = _outcomes(plan.stage, plan.policy_id, plan.settings_id)
    return _count(outcomes, [task.uid for task in plan.tasks], plan.trials, rule)


def own_errors(plan: SamplingPlan) -> int:
    """Trials that are void by an error of their check or task: the same episode ends the same way when run again."""
    if not plan.stage.shards.is_dir():
        return 0
    of_plan = plan.policy_id, plan.settings_id
    found = (record for record in stored(plan.stage) if (record.trial.policy, record.trial.settings) == of_plan)
    return sum(record.fault_kind in ("grader", "task") for record in found)


def require_one_start(plan: SamplingPlan) -> None:
    """Raise UserError if valid trials of a task began in different states."""
    valid = [
        (record.trial.uid, record.initial_state_hash)
        for record in stored(plan.stage)
        if record.outcome is not Outcome.VOID
        and (record.trial.policy, record.trial.settings) == (plan.policy_id, plan.settings_id)
    ]
    if mixed := mixed_starts(valid):
        raise UserError(f"{plan.name}: {len(mixed)} tasks begin in different states: {', '.join(mixed[:5])}", WHY, DO)


def owed_by(plan: SamplingPlan) -> list[str]:
    """The trials that `missing_trials` names; at once all of them if the stage was never begun."""
    if not plan.stage.shards.is_dir():
        return [f"{task.uid}#{index}" for task in plan.tasks for index in range(plan.trials)]
    return missing_trials(plan)[1]


def owed_of_evaluation(stage: Stage) -> list[str]:
    """As `owed_by`, of an evaluation by the shards that were written for it: the policy need not be there."""
    owed: list[str] = []
    outcomes: dict[tuple[str, str], _Outcomes] = {}
    for path, uids in written_shards(stage):
        spec = json.loads(path.read_text())
        key = spec["policy"], spec["settings"]
        outcomes[key] = outcomes[key] if key in outcomes else _outcomes(stage, *key)
        owed += _count(outcomes[key], uids, spec["trials"], None)[1]
    return owed


def written_shards(stage: Stage) -> list[Shard]:
    """The shards whose JSON files lie there."""
    return [(path, json.loads(path.read_text())["uids"]) for path in sorted(stage.path.glob("plan/shard-*.json"))]


def owing(shards: Iterable[Shard], owed: Sequence[str]) -> list[Path]:
    """Of some shards the files of those with a task that `owed` names: the others have nothing to do, and would serve a
    model for it."""
    tasks = {name.rpartition("#")[0] for name in owed}
    return [path for path, uids in shards if not tasks.isdisjoint(uids)]


_Outcomes = dict[tuple[str, int], Outcome]


def _outcomes(stage: Stage, policy: str, settings: str) -> _Outcomes:
    records = stored(stage) if stage.shards.is_dir() else ()
    return {
        (record.trial.uid, record.trial.index): record.outcome
        for record in records
        if (record.trial.policy, record.trial.settings) == (policy, settings)
    }


def _count(
    outcomes: _Outcomes, uids: Iterable[str], trials: int, rule: Callable[[int, int], bool] | None
) -> tuple[dict[str, int], list[str]]:
    counts = {"planned": 0, "stored": 0, "passes": 0, "fails": 0, "voids": 0, "saved": 0}
    owed = []
    for uid in uids:
        passes = valid = 0
        for index in range(trials):
            outcome = outcomes.get((uid, index))
            if rule is not None and outcome is None and rule(passes, valid):
                counts["saved"] += trials - index
                break
            counts["planned"] += 1
            counts["stored"] += outcome is not None
            counts["voids"] += outcome is Outcome.VOID
            if outcome is None or outcome is Outcome.VOID:
                owed.append(f"{uid}#{index}")
                continue
            valid += 1
            passes += outcome is Outcome.PASS
        counts["passes"] += passes
        counts["fails"] += valid - passes
    return counts, owed
