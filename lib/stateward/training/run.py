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
from stateward.store.stage import write_json
from stateward.tasks.task import Task
from stateward.training import verify
from stateward.training.dataset import check_pool, write_dataset, write_tasks
from stateward.training.overrides import NAME
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
    ray_node: RayNode | None = None,
) -> TrainResult:
    """Train `model` on `pool` for `config.train.steps` steps, going on from the newest verified checkpoint.

    Args:
        policy_id: fingerprint of the base policy; the episodes of step N are recorded under ``policy_id+N``.
        ray_node: the Ray of an allocation; without one, a private Ray is started on this machine.

    Raises:
        UserError: something that must hold before the first step does not.
        SystemFault: the run ended before its last step; the text has the cause and where the logs are.
    """
    plan = plan_training(config, run_dir, model.resolve())
    check_pool(pool, plan.layout.groups)
    target = config.train.steps
    start = verify.prepare_resume(plan.paths.checkpoints, plan.layout.world_size)
    if start < target:
        _write_plan(plan, policy_id, pool)
        with ExitStack() as stack:
            node = ray_node or stack.enter_context(_local_ray(plan))
            _drive(plan, node)
    return TrainResult(steps=target, checkpoint=_finished(plan, target), resumed_from=start)


def _finished(plan: TrainPlan, target: int) -> Path:
    """The last checkpoint; Verl has ended with status 0 after training no step at all, so its word is not enough."""
    latest = verify.latest_verified(plan.paths.checkpoints)
    step = verify.step_of(latest) if latest else None
    if latest is None or step != target:
        raise SystemFault(
            "training", f"the trainer ended at step {step or 0} of {target} without an error; logs: {plan.paths.logs}"
        )
    return latest


def _write_plan(plan: TrainPlan, policy_id: str, pool: Sequence[Task]) -> None:
    paths, config = plan.paths, plan.config
    for folder in (paths.plan, paths.checkpoints, paths.episodes / "shards", paths.logs):
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
