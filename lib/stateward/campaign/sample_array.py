"""The array of a sampling stage: how many devices one of its tasks holds, and what all of them take at most."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from stateward.campaign.link import Link
from stateward.campaign.simulator import require_sample_room
from stateward.cluster.directives import seconds_of
from stateward.cluster.profile import ClusterProfile, Role
from stateward.config import Config
from stateward.config.simulator import simulated
from stateward.errors import UserError


def sample_role(config: Config, devices: int, profile: ClusterProfile) -> Role:
    """The profile's role `sample` with as many GPUs as an array task serves on: `devices` of the policy's, and the
    simulator's. The role's own number is what a node has.

    Raises:
        UserError: a node has too few, or the campaign computes on CPUs and the GPUs would stand idle.
    """
    require_sample_room(config, devices, profile)
    role = profile.sample
    if not role.gpus:  # served on CPUs
        return role
    if config.train.device == "cpu":
        if role.gpus > devices > 0:
            raise UserError(
                f"the profile {profile.name!r} holds {role.gpus} GPUs for each array task of a campaign on CPUs",
                "train.device=cpu: nothing of it would use them",
                "in a profile of your own give the role `sample` gpus: 0 and a partition of CPU nodes; `make slurm-up`"
                " starts the cluster of --cluster practice",
            )
        return replace(role, gpus=min(role.gpus, devices))
    if role.gpus < devices:
        raise UserError(
            f"the profile's role `sample` has {role.gpus} GPUs, and a replica is served on {devices}",
            "serve.tensor_parallel asks for them, and one replica is on one node",
            f"lower it, for instance serve.tensor_parallel={role.gpus}, and raise serve.replicas as much",
        )
    return replace(role, gpus=devices + (config.simulator.devices if simulated(config.episode) else 0))


def array_line(config: Config, devices: int, shards: int, profile: ClusterProfile) -> str:
    """What ``--array --dry-run`` says of the array besides its trials. Raises UserError as `sample_role` does."""
    role = sample_role(config, devices, profile)
    link = Link(name="", kind="array", role=role, done=False, shards=[Path()] * shards)
    hours = link.gpu_hours(profile.max_array_tasks, seconds_of(role.time))
    return (
        f"array on {profile.name}: {shards} shards in {link.shape(profile.max_array_tasks)}, {role.time} each;"
        f" {hours:,.1f} GPU hours at most"
    )
