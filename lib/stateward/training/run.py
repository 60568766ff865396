"""One training run from its plan to a verified checkpoint."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stateward.cluster.services.vllm_metadata import metadata_environment
from stateward.config import Config, config_to_dict
from stateward.episode import settings_of, tasks_fingerprint
from stateward.errors import SystemFault, UserError
from stateward.outcome import fingerprint
from stateward.store import Stage, read_journal, seal
from stateward.store.stage import write_json
from stateward.tasks.task import Task
from stateward.training import checks, verify
from stateward.training.dataset import check_pool, write_dataset, write_tasks
from stateward.training.overrides import NAME
from stateward.training.paths import TrainPaths
from stateward.training.plan import TrainPlan, plan_training, worker_environment
from stateward.training.ray_local import RayNode, private_ray

#: Logical CPUs of the private Ray besides the three that Verl reserves for each device slot: transfer queue (2) and
#: room for actors that ask for one only while they start.
_SPARE_CPUS = 4
_CPUS_A_SLOT = 3


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
    """
    plan = plan_training(config, run_dir, model.resolve())
    paths, target = plan.paths, config.train.steps
    inputs = _inputs(plan, policy_id, pool)
    stage = Stage(paths.run_dir, "train")
    start = verify.prepare_resume(paths.checkpoints, plan.layout.world_size)
    if start < target or not stage.is_done(inputs):
        needed = _checked(plan, pool, evidence)
        stage.begin(config_to_dict(config), inputs)
        if start < target:
            checks.check_room(paths.checkpoints, needed)
            longest = checks.check_prompts(config, plan.model, pool)
            print(f"train: the longest of {len(pool)} prompts has {longest} tokens", flush=True)
            _write_plan(plan, policy_id, pool, start=len(stage.manifest["starts"]))
            with ExitStack() as stack:
                _drive(plan, ray_node or stack.enter_context(_local_ray(plan)))
        checkpoint = _finished(plan, target)
        _seal_episodes(paths)
        stage.done(steps=target, checkpoint=str(checkpoint.relative_to(paths.run_dir)))
    return TrainResult(steps=target, checkpoint=_finished(plan, target), resumed_from=start)


def _checked(plan: TrainPlan, pool: Sequence[Task], evidence: Path | None) -> float:
    """The checks that need no world; the bytes that checkpoints will take."""
    checks.check_versions()
    check_pool(pool, plan.layout.groups)
    checks.check_model_files(plan.model)
    if evidence is not None:
        checks.check_disjoint(evidence, pool)
    budgets = checks.memory_budgets(plan.config, plan.layout, plan.model)
    print("\n".join(line for budget in budgets for line in budget.lines()), flush=True)
    return budgets[-1].total


#: Settings that change how a run is carried out but not what it learns: they may differ when it goes on.
_OPERATIONAL = {
    "steps",
    "save_every",
    "agent_workers",
    "max_attempts",
    "max_refill_rounds",
    "max_void_share",
    "watchdog_minutes",
    "max_logprob_difference",
    "device_memory_gb",
    "host_memory_gb",
    "trackers",
    "param_offload",
    "optimizer_offload",
}


def _inputs(plan: TrainPlan, policy_id: str, pool: Sequence[Task]) -> dict[str, Any]:
    """What the result depends on, for the stage's marker."""
    train = config_to_dict(plan.config.train)
    return {
        "policy": policy_id,
        "settings": settings_of(plan.config, max_model_len=plan.config.policy.max_model_len),
        "tasks": tasks_fingerprint(pool),
        "train": {name: value for name, value in train.items() if name not in _OPERATIONAL},
    }


def _seal_episodes(paths: TrainPaths) -> None:
    for journal in sorted(paths.shards.glob("*.jsonl")):
        if next(iter(read_journal(journal)), None) is None:
            journal.unlink()
        else:
            seal(journal, journal.with_suffix(".h5"))


def _finished(plan: TrainPlan, target: int) -> Path:
    """The last checkpoint; Verl has ended with status 0 after training no step at all, so its word is not enough."""
    latest = verify.latest_verified(plan.paths.checkpoints)
    step = verify.step_of(latest) if latest else None
    if latest is None or step != target:
        raise SystemFault(
            "training", f"the trainer ended at step {step or 0} of {target} without an error; logs: {plan.paths.logs}"
        )
    return latest


def _write_plan(plan: TrainPlan, policy_id: str, pool: Sequence[Task], *, start: int) -> None:
    paths, config = plan.paths, plan.config
    for folder in (paths.plan, paths.checkpoints, paths.shards, paths.logs):
        folder.mkdir(parents=True, exist_ok=True)
    write_dataset(paths.dataset, pool)
    write_tasks(paths.tasks, pool)
    settings = fingerprint(settings_of(config, max_model_len=config.policy.max_model_len))
    write_json(
        paths.settings,
        {
            "config": config_to_dict(config),
            "run_dir": str(paths.run_dir),
            "model": str(plan.model),
            "policy": policy_id,
            "settings": settings,
            "pool": tasks_fingerprint(pool),
            "start": start,
        },
    )
    loop = {"name": NAME, "_target_": "stateward.training.agent_loop.EpisodeLoop", "settings": str(paths.settings)}
    paths.agent_loops.write_text(json.dumps([loop], indent=1))
    lines = [f"# {override.reason}\n{override.render()}" for override in plan.overrides]
    paths.overrides.write_text("\n".join(lines) + "\n")


def _environment(plan: TrainPlan) -> dict[str, str]:
    env = worker_environment(plan.config, plan.paths)
    return env | metadata_environment(plan.paths.plan) if plan.config.train.device == "cpu" else env


def _local_ray(plan: TrainPlan) -> Any:
    if plan.layout.nodes != 1:
        raise UserError(
            f"train.nodes={plan.layout.nodes}, but this run starts its own Ray on one machine",
            "a run over several nodes needs the Ray of an allocation",
            "submit it as a heterogeneous job, or set train.nodes=1",
        )
    return private_ray(
        slots=plan.layout.devices_per_node,
        cpus=_CPUS_A_SLOT * plan.layout.devices_per_node + _SPARE_CPUS,
        object_store_mb=256,
        env=_environment(plan),
        logs=plan.paths.logs / "ray",
    )


def _drive(plan: TrainPlan, node: RayNode) -> None:
    env = _environment(plan)
    paths = plan.paths
    write_json(
        paths.driver_spec,
        {
            "ray_address": node.address,
            "namespace": f"{NAME}-{os.getpid()}",
            "env": env,
            "agent_workers": plan.config.train.agent_workers,
            "overrides": [override.render() for override in plan.overrides],
        },
    )
    result_file = paths.driver_spec.with_name("driver_result.json")
    result_file.unlink(missing_ok=True)
    log = paths.logs / "driver.log"
    with open(log, "ab") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "stateward.training.driver", str(paths.driver_spec)],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env={**os.environ, **env, **node.env},
        )
        try:
            code = process.wait()
        except BaseException:
            process.kill()
            process.wait()
            raise
    if code == 0:
        return
    told = json.loads(result_file.read_text())["error"] if result_file.is_file() else f"its driver ended with {code}"
    raise SystemFault("training", f"{told}\n  logs: {log} and {paths.logs / 'ray'}")
