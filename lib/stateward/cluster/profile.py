"""A cluster as its users see it: partitions, resources a role, limits. Read from ``configs/cluster/NAME.yaml``."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import ConfigKeyError, OmegaConfBaseException

from stateward.cluster.directives import check_directives, seconds_of
from stateward.cluster.node import check_scratch
from stateward.config.bounds import COUNT, NOT_NEGATIVE, Bound, Bounds, require_bounds
from stateward.config.paths import resolved
from stateward.errors import UserError, nearest


@dataclass(kw_only=True)
class Role:
    """What one kind of job asks of the cluster, per node."""

    partition: str = "???"  # always written: a component without one lands in the default partition and pends for ever
    nodes: int = 1
    cpus: int = 8  # per node
    memory_gb: int = 32  # per node; 0: all of the node's memory
    gpus: int = 0  # per node
    time: str = "12:00:00"  # [days-]hours:minutes:seconds
    qos: str = ""
    constraint: str = ""
    exclusive: bool = False
    extra: dict[str, Any] = field(default_factory=dict)  # further sbatch directives, long names without dashes


@dataclass(kw_only=True)
class ContainerConfig:
    """The Apptainer image that stages run in; without `image` the active environment is used."""

    image: str = ""  # a path that every node sees
    binds: list[str] = field(default_factory=list)  # SOURCE[:TARGET[:ro]], besides what a job's own paths need
    env_file: str = ""  # NAME=VALUE lines with secrets, such as a user model's key; mode 600
    command: str = "apptainer"


@dataclass(kw_only=True)
class ClusterProfile:
    """One cluster.

    Roles: `service` (Ray head, driver, Typesense), `train` (Ray workers), `sample` (probe and evaluation arrays, one
    vLLM replica an array task), `small` (merge, report), and, where endpoints have `kind: simulator`, `simulator` (one
    node that serves their model to a training job). How many nodes and GPUs `train` really gets, the campaign's
    configuration says; here they are what sbatch/ and the doctor take.
    """

    name: str = "???"
    account: str = ""
    gpu_request: str = "gres"  # gres: --gres=gpu:TYPE:N | gpus-per-node: --gpus-per-node=TYPE:N
    gpu_type: str = ""
    service: Role = field(default_factory=Role)
    train: Role = field(default_factory=Role)
    sample: Role = field(default_factory=Role)
    small: Role = field(default_factory=Role)
    simulator: Role | None = None
    max_array_tasks: int = 0  # sites cap jobs per user; 0: no cap of ours
    array_concurrency: int = 0  # array tasks at a time over all chunks; 0: as many as there are
    signal_seconds: int = 300  # USR1 reaches the batch script this long before the time limit, and up to 60 s earlier
    max_restarts: int = 10
    ready_seconds: int = 600  # until Ray must be ready over all nodes of a training job, or the reason is said
    modules: list[str] = field(default_factory=list)
    setup: list[str] = field(default_factory=list)  # shell lines that make `python` the right one
    network_interface: str = (
        ""  # of Ray, NCCL and gloo; "": the default route's; "loopback": all nodes are this machine
    )
    typesense: str = ""  # its server's binary: one for a training job, on the service node, and one an array task
    scratch: str = "/tmp"  # node-local, private below a folder per job
    container: ContainerConfig = field(default_factory=ContainerConfig)

    def roles(self) -> dict[str, Role]:
        """Every role that this cluster has, by name."""
        found = {name: getattr(self, name) for name in ("service", "train", "sample", "small", "simulator")}
        return {name: role for name, role in found.items() if role is not None}


BOUNDS: Bounds = {
    Role: {"nodes": COUNT, "cpus": COUNT, "memory_gb": NOT_NEGATIVE, "gpus": NOT_NEGATIVE},
    ClusterProfile: {
        "max_array_tasks": NOT_NEGATIVE,
        "array_concurrency": NOT_NEGATIVE,
        "signal_seconds": Bound(least=1, most=65_535),  # sbatch --signal
        "max_restarts": NOT_NEGATIVE,
        "ready_seconds": COUNT,
    },
}


def load_profile(path: Path | str) -> ClusterProfile:
    """Read and check a profile.

    Raises:
        UserError: no such file, an unknown or mistyped key, a missing partition, a number out of its bounds, an unknown
            sbatch directive, a scratch folder too long for Ray.
    """
    path = Path(path)
    if not path.is_file():
        raise UserError(f"{path}: no such cluster profile", do="copy configs/cluster/practice.yaml and adapt it")
    try:
        node = OmegaConf.load(path)
    except yaml.YAMLError as error:
        raise UserError(f"{path} is not valid YAML", str(error)) from error
    if not isinstance(node, DictConfig):
        raise UserError(f"{path} holds a list", "a profile is a mapping", "see configs/cluster/practice.yaml")
    schema = OmegaConf.structured(ClusterProfile)
    try:
        merged = OmegaConf.merge(schema, node)
    except ConfigKeyError as error:
        key = str(error.full_key or error.key)
        valid = OmegaConf.select(schema, key.rpartition(".")[0]) if "." in key else schema
        raise UserError(f"{path}: unknown key {key!r}", do=nearest(key.rpartition(".")[2], map(str, valid))) from error
    except OmegaConfBaseException as error:
        raise UserError(f"{path}: {error.full_key or 'value'} does not fit", str(error).splitlines()[0]) from error
    missing = sorted(str(key) for key in OmegaConf.missing_keys(merged))
    if missing:
        raise UserError(f"{path}: no value for {', '.join(missing)}", "these have no default", "add them to the file")
    profile = cast(ClusterProfile, OmegaConf.to_object(merged))
    require_bounds(profile, BOUNDS, where=f"{path}: ")
    _resolve_paths(profile, path.parent)
    check_scratch(profile.scratch)
    for name, role in profile.roles().items():
        check_directives(role.extra, where=f"{path}: {name}.extra")
        written = OmegaConf.select(node, f"{name}.time")
        if isinstance(written, int):
            raise UserError(
                f"{path}: {name}.time is the number {written}",
                "YAML reads 12:00:00 without quotes as 43200, in base 60, and Slurm takes a number for minutes",
                'write the time in quotes: "12:00:00", or "720" for minutes',
            )
        # `small` is not signalled. The signal may come up to a minute early.
        seconds, lead = seconds_of(role.time), 0 if name == "small" else profile.signal_seconds + 60
        if seconds <= lead:
            raise UserError(
                f"{path}: {name}.time={role.time} is {seconds} s",
                f"a job is told to stop signal_seconds={profile.signal_seconds} before its end, and up to 60 s earlier:"
                " it would be stopped at once, each time it starts",
                "raise the time, or lower signal_seconds",
            )
    if profile.gpu_request not in ("gres", "gpus-per-node"):
        raise UserError(
            f"{path}: gpu_request={profile.gpu_request!r}", do=nearest(profile.gpu_request, ["gres", "gpus-per-node"])
        )
    return profile


def _resolve_paths(profile: ClusterProfile, folder: Path) -> None:
    """Make relative paths absolute: they are relative to the profile's own folder. `setup` runs in the checkout."""
    container = profile.container
    if container.image:
        container.image = resolved(container.image, folder)
    if container.env_file:
        container.env_file = resolved(container.env_file, folder)
    container.binds = [
        ":".join([resolved(source, folder), *rest]) for source, *rest in (bind.split(":") for bind in container.binds)
    ]
    if "/" in profile.typesense:  # otherwise a program on PATH
        profile.typesense = resolved(profile.typesense, folder)


def role_directives(profile: ClusterProfile, role: Role, *, tasks_per_node: int = 1) -> dict[str, Any]:
    """Every directive of one job or component. None is left to a site's default, which differs between sites."""
    out: dict[str, Any] = {
        "partition": role.partition,
        "nodes": role.nodes,
        "ntasks-per-node": tasks_per_node,
        "cpus-per-task": role.cpus // tasks_per_node,
        "mem": f"{role.memory_gb}G" if role.memory_gb else 0,
        "time": role.time,
    }
    if profile.account:
        out["account"] = profile.account
    if role.gpus:
        kind = f"{profile.gpu_type}:" if profile.gpu_type else ""
        name, prefix = ("gres", "gpu:") if profile.gpu_request == "gres" else ("gpus-per-node", "")
        out[name] = f"{prefix}{kind}{role.gpus}"
    if role.qos:
        out["qos"] = role.qos
    if role.constraint:
        out["constraint"] = role.constraint
    if role.exclusive:
        out["exclusive"] = True
    return {**out, **role.extra}
