"""One training run from its plan to a verified checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from stateward.config import Config, config_to_dict
from stateward.errors import SystemFault
from stateward.store import Stage, read_journal, seal
from stateward.tasks.task import Task
from stateward.training import checks, verify
from stateward.training.dataset import check_pool
from stateward.training.figures import recover_line
from stateward.training.inputs import training_inputs
from stateward.training.launch import drive, local_ray, write_plan
from stateward.training.paths import TrainPaths
from stateward.training.plan import TrainPlan, plan_training
from stateward.training.ray_local import RayNode
from stateward.training.sole_run import sole_run


@dataclass(frozen=True, kw_only=True)
class TrainResult:
    """What came of a run. `resumed_from` is the step it started after, 0 from scratch."""

    steps: int
    checkpoint: Path
    resumed_from: int


def train(
    config: Config,
    run_dir: Path | str,
    *,
    model: Path,
    policy_id: str,
    pool: Sequence[Task],
    evidence: Path | None = None,
    ray_node: RayNode | None = None,
) -> TrainResult:
    """Train `model` on `pool` for `config.train.steps` steps, going on from the newest verified checkpoint.

    Args:
        policy_id: fingerprint of the base policy; the episodes of step N are recorded under ``policy_id+N``.
        evidence: the contamination guard's file about this pool; None trusts the caller.
        ray_node: the Ray of an allocation; without one, a private Ray is started on this machine.

    Raises:
        UserError: something that must hold before the first step does not.
        SystemFault: the run ended before its last step; the text has the cause and where the logs are.
        DeadEnd: so it did, and a resume would end there again.
    """
    plan = plan_training(config, run_dir, model.resolve())
    paths, target = plan.paths, config.train.steps
    inputs = training_inputs(plan, policy_id, pool)
    stage = Stage(paths.run_dir, "train")
    start = _step(verify.latest_verified(paths.checkpoints))
    if start >= target and stage.is_done(inputs):
        return TrainResult(steps=target, checkpoint=_finished(plan, target), resumed_from=start)
    # Whatever may be refused is, before anything in the run directory is touched.
    needed = _checked(plan, pool, evidence)
    if start < target:
        longest = checks.check_prompts(config, plan.model, pool)
        print(f"train: the longest of {len(pool)} prompts has {longest} tokens", flush=True)
    with sole_run(paths.lock):
        stage.begin(config_to_dict(config), inputs)
        start = verify.prepare_resume(paths.checkpoints, plan.layout.world_size)
        recover_line(paths.metrics, paths.saved_figures, start)
        if start < target:
            checks.check_room(paths.checkpoints, needed)
            write_plan(plan, policy_id, pool, start=len(stage.manifest["starts"]))
            with ExitStack() as stack:
                devices = plan.layout.world_size if config.train.device == "cuda" else 0
                stack.enter_context(stage.record_worker(gpus=devices))  # GPU hours, where no accounting knows them
                drive(plan, ray_node or stack.enter_context(local_ray(plan)))
        checkpoint = _finished(plan, target)
        _seal_episodes(paths)
        stage.done(steps=target, checkpoint=str(checkpoint.relative_to(paths.run_dir)))
    return TrainResult(steps=target, checkpoint=checkpoint, resumed_from=start)


def _checked(plan: TrainPlan, pool: Sequence[Task], evidence: Path | None) -> float:
    """The checks that need no world; the bytes that checkpoints will take."""
    checks.check_versions()
    check_pool(pool, plan.layout.groups)
    checks.check_model_files(plan.model)
    checks.check_heads(plan.model, plan.layout)
    checks.check_hybrid(plan.model, plan.layout)
    if evidence is not None:
        checks.check_disjoint(evidence, pool)
    budgets = checks.memory_budgets(plan.config, plan.layout, plan.model)
    print("\n".join(line for budget in budgets for line in budget.lines()), flush=True)
    return budgets[-1].total


def _seal_episodes(paths: TrainPaths) -> None:
    for journal in sorted(paths.shards.glob("*.jsonl")):
        if next(iter(read_journal(journal)), None) is None:
            journal.unlink()
        else:
            seal(journal, journal.with_suffix(".h5"))


def _finished(plan: TrainPlan, target: int) -> Path:
    """The last checkpoint; Verl has ended with status 0 after training no step at all, so its word is not enough."""
    latest = verify.latest_verified(plan.paths.checkpoints)
    step = _step(latest)
    if latest is None or step != target:
        raise SystemFault(
            "training", f"the trainer ended at step {step} of {target} without an error; logs: {plan.paths.logs}"
        )
    return latest


def _step(checkpoint: Path | None) -> int:
    return (verify.step_of(checkpoint) or 0) if checkpoint else 0
