"""CPUs that Ray must have: Verl reserves them, used or not, and waits without a word for those that are not there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stateward.config import Config
from stateward.errors import UserError

#: Of each device: one for every kind of process that might share it (verl 0.9.1, ResourcePoolManager).
_DEVICE = 3
#: The transfer queue's controller, on any node (TransferQueue, TransferQueueController).
_CONTROLLER = 1
#: Room for actors that ask for one only while they start: hosts and engines.
_STARTING = 2
#: Where Verl is told how many parts the transfer queue's store has, and how many it has otherwise.
_UNITS = "transfer_queue.backend.SimpleStorage.num_data_storage_units"
_VERLS_UNITS = 8


def storage_units(config: Config) -> int:
    """Parts of the transfer queue's store; each holds a CPU, and they go round over all nodes of Ray."""
    ours = 1 if config.train.device == "cpu" else _VERLS_UNITS
    return int(next((value for key, value in config.train.verl.items() if key.lstrip("+") == _UNITS), ours))


def needed_cpus(*, devices: int, units: int, nodes: int) -> int:
    """Of one node of `nodes`, which has `devices` (0: a head without any)."""
    return _DEVICE * devices + -(-units // nodes) + _CONTROLLER + (_STARTING if devices else 0)


def check_profile(config: Config, *, head: int, workers: int) -> None:
    """The CPUs a node of an allocation, as a profile asks for them: of the head, and of a node with devices.

    Raises:
        UserError: they are too few.
    """
    train, nodes = config.train, config.train.nodes + 1
    for name, there, devices in (("service", head, 0), ("train", workers, train.gpus_per_node)):
        needed = needed_cpus(devices=devices, units=storage_units(config), nodes=nodes)
        if there < needed:
            raise UserError(
                f"the cluster profile asks for {name}.cpus={there}, and Ray needs {needed} there", _WHY, f"set {needed}"
            )


def check_nodes(found: Sequence[dict[str, Any]], units: int) -> None:
    """The same of the nodes that a Ray has, `ray.nodes()`.

    Raises:
        UserError: a node has too few.
    """
    alive = [node for node in found if node["Alive"]]
    for node in alive:
        there, devices = (int(node["Resources"].get(name, 0)) for name in ("CPU", "GPU"))
        needed = needed_cpus(devices=devices, units=units, nodes=len(alive))
        if there < needed:
            raise UserError(
                f"Ray has {there} CPUs on {node['NodeManagerAddress']} with {devices} devices, and needs {needed}",
                _WHY,
                f"allocate {needed} CPUs on such a node",
            )


_WHY = (
    f"Verl reserves {_DEVICE} for each device and the transfer queue one for each of its parts, and both would wait "
    "for them for ever"
)
