"""A run's processes: what is written for them, the Ray they live in, and the driver.

Everything a process needs to know is in files below `TrainPaths.plan`, so that a worker on another node, or one that
starts after a resume, reads the same.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager

from stateward.cluster.services.vllm_metadata import metadata_environment
from stateward.config import config_to_dict
from stateward.episode import settings_of, tasks_fingerprint
from stateward.errors import DeadEnd, SystemFault, UserError
from stateward.outcome import fingerprint
from stateward.store.stage import write_json
from stateward.tasks.task import Task
from stateward.training.cpus import needed_cpus, storage_units
from stateward.training.dataset import write_dataset, write_tasks
from stateward.training.overrides import NAME
from stateward.training.plan import TrainPlan, worker_environment
from stateward.training.ray_local import RayNode, private_ray

#: The process that trains; see `driver`.
DRIVER = "stateward.training.driver"


def write_plan(plan: TrainPlan, policy_id: str, pool: Sequence[Task], *, start: int) -> None:
    """Everything that the run's processes read. `start` counts the starts of the run, this one included."""
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


def local_ray(plan: TrainPlan) -> AbstractContextManager[RayNode]:
    """The private Ray of a run on this machine.

    Raises:
        UserError: the run wants several nodes.
    """
    if plan.layout.nodes != 1:
        raise UserError(
            f"train.nodes={plan.layout.nodes}, but this run starts its own Ray on one machine",
            "a run over several nodes needs the Ray of an allocation",
            "submit it as a heterogeneous job, or set train.nodes=1",
        )
    return private_ray(
        slots=plan.layout.devices_per_node,
        cpus=needed_cpus(devices=plan.layout.devices_per_node, units=storage_units(plan.config), nodes=1),
        object_store_mb=256,
        env=_environment(plan),
        logs=plan.paths.logs / "ray",
    )


def drive(plan: TrainPlan, node: RayNode, *, module: str = DRIVER) -> None:
    """Run the driver to its end.

    Raises:
        SystemFault: it did not end with status 0; the text has what it told, and where the logs are.
        DeadEnd: so it did, and another start would come to the same end.
    """
    env = _environment(plan)
    paths = plan.paths
    write_json(
        paths.driver_spec,
        {
            "ray_address": node.address,
            "namespace": f"{NAME}-{os.getpid()}",
            "env": env,
            "agent_workers": plan.config.train.agent_workers,
            "storage_units": storage_units(plan.config),
            "overrides": [override.render() for override in plan.overrides],
        },
    )
    result_file = paths.driver_result
    result_file.unlink(missing_ok=True)
    log = paths.logs / "driver.log"
    with open(log, "ab") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", module, str(paths.driver_spec)],
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
    told = json.loads(result_file.read_text()) if result_file.is_file() else {"error": f"its driver ended with {code}"}
    text = f"{told['error']}\n  logs: {log} and {paths.logs / 'ray'}"
    raise DeadEnd(text) if told.get("dead_end") else SystemFault("training", text)
