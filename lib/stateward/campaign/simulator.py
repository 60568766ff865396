"""Does a cluster profile have room for the simulator's model? Asked before anything is submitted."""

from __future__ import annotations

from dataclasses import replace

from stateward.cluster.profile import ClusterProfile
from stateward.config import Config
from stateward.config.simulator import simulated, simulator_model
from stateward.errors import UserError


def with_simulator(config: Config, profile: ClusterProfile) -> ClusterProfile:
    """The profile for a training job: its role `simulator` is kept only if an endpoint wants the model.

    Raises:
        UserError: an endpoint wants it, and there is no such role, no such model, or too few devices for it.
    """
    parties = simulated(config.episode)
    if not parties:
        return replace(profile, simulator=None)
    simulator_model(config.simulator)
    if profile.simulator is None:
        raise UserError(
            f"episode.{parties[0]}.kind=simulator, and the profile {profile.name!r} has no role `simulator`",
            "the training job serves that model on a node of its own",
            "add to the profile, for instance: simulator: { partition: gpu, cpus: 32, memory_gb: 256, gpus: 8 }; or set"
            " kind=chat with the base_url of a server",
        )
    if config.train.device != "cpu" and profile.simulator.gpus < config.simulator.devices:
        raise UserError(
            f"the profile's role `simulator` has {profile.simulator.gpus} GPUs, and its model is"
            f" served on {config.simulator.devices}",
            do="give the role as many gpus, or lower simulator.tensor_parallel",
        )
    # One server is one node, whatever the role says.
    return replace(profile, simulator=replace(profile.simulator, nodes=1))


def require_sample_room(config: Config, devices: int, profile: ClusterProfile) -> None:
    """Raise UserError if an array task cannot hold the simulator's model beside the `devices` of the policy's."""
    if not simulated(config.episode) or config.train.device == "cpu":
        return
    simulator_model(config.simulator)
    needed = devices + config.simulator.devices
    if profile.sample.gpus < needed:
        raise UserError(
            f"the profile's role `sample` has {profile.sample.gpus} GPUs, and an array task needs {needed}",
            f"it serves the policy on {devices} and the simulator's model on {config.simulator.devices}",
            "give the role more gpus, lower serve.tensor_parallel or simulator.tensor_parallel, or set kind=chat with"
            " the base_url of a server",
        )


def simulator_seconds(config: Config) -> float:
    """How long its model may take to load; 0 where no endpoint wants it."""
    return config.simulator.startup_seconds if simulated(config.episode) else 0.0
