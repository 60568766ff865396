"""What a cluster says of itself, in four controller calls and one of the accounting daemon."""

from __future__ import annotations

import getpass
import re
import shutil
from dataclasses import dataclass, field

from stateward.cluster.scheduler import run_client, try_client


@dataclass(frozen=True)
class NodeFacts:
    """A node as configured. `gpus`: type → number; the type is empty where the site names none."""

    name: str
    cpus: int
    memory_mb: int
    gpus: dict[str, int]

    def gpus_of(self, kind: str) -> int:
        return self.gpus.get(kind, 0) if kind else sum(self.gpus.values())


@dataclass(kw_only=True)
class PartitionFacts:
    """A partition; empty `allow_*` are open to all. `max_time` is in Slurm's words, or ``UNLIMITED``."""

    name: str
    state: str
    max_time: str
    max_nodes: int | None
    allow_accounts: list[str]
    allow_qos: list[str]
    nodes: list[NodeFacts] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Association:
    """What the user may do under one account. `max_submit`: jobs queued at a time, None without a limit."""

    account: str
    max_submit: int | None


@dataclass(frozen=True, kw_only=True)
class ClusterFacts:
    """`config` is ``scontrol show config``; `associations` are None where there is no accounting."""

    version: str
    name: str
    config: dict[str, str]
    partitions: dict[str, PartitionFacts]
    associations: list[Association] | None

    @property
    def max_array_size(self) -> int:
        return int(self.config.get("MaxArraySize", "1001"))

    @property
    def has_accounting(self) -> bool:
        return "slurmdbd" in self.config.get("AccountingStorageType", "") and shutil.which("sacctmgr") is not None

    @property
    def enforces(self) -> bool:
        return any(word in self._enforced for word in ("associations", "limits", "qos", "safe", "all"))

    @property
    def enforces_limits(self) -> bool:
        return any(word in self._enforced for word in ("limits", "qos", "safe", "all"))

    @property
    def _enforced(self) -> str:
        return self.config.get("AccountingStorageEnforce", "")


def ask_cluster() -> ClusterFacts:
    """Ask for everything at once.

    Raises:
        UserError: there is no Slurm here, or it refused.
    """
    rows = [line.partition("=") for line in run_client("scontrol", "show", "config").splitlines()]
    config = {key.strip(): value.strip() for key, equals, value in rows if equals}
    partitions = {}
    for line in run_client("scontrol", "show", "partition", "--oneliner").splitlines():
        values = dict(part.split("=", 1) for part in line.split() if "=" in part)
        partitions[values["PartitionName"]] = PartitionFacts(
            name=values["PartitionName"],
            state=values.get("State", "UP"),
            max_time=values.get("MaxTime", "UNLIMITED"),
            max_nodes=int(values["MaxNodes"]) if values.get("MaxNodes", "UNLIMITED").isdigit() else None,
            allow_accounts=_listed(values.get("AllowAccounts", "ALL")),
            allow_qos=_listed(values.get("AllowQos", "ALL")),
        )
    for line in run_client("sinfo", "--noheader", "--Node", "--format", "%R|%N|%c|%m|%G").splitlines():
        partition, node, cpus, memory, gres = line.split("|")
        if partition in partitions:
            partitions[partition].nodes.append(NodeFacts(node, int(cpus), int(memory.rstrip("+")), _gpus(gres)))
    return ClusterFacts(
        version=config.get("SLURM_VERSION", "unknown version"),
        name=config.get("ClusterName", ""),
        config=config,
        partitions=partitions,
        associations=_associations(config),
    )


def _listed(text: str) -> list[str]:
    return [] if text in ("ALL", "(null)", "N/A") else text.split(",")


def _gpus(gres: str) -> dict[str, int]:
    """``gpu:h100:8(S:0-1),gpu:2`` → ``{"h100": 8, "": 2}``; other generic resources are not ours."""
    found: dict[str, int] = {}
    for kind, number in re.findall(r"(?:^|,)gpu(?::([^:,(]*[^:,(\d][^:,(]*))?:(\d+)", gres):
        found[kind] = found.get(kind, 0) + int(number)
    return found


def _associations(config: dict[str, str]) -> list[Association] | None:
    if "slurmdbd" not in config.get("AccountingStorageType", "") or shutil.which("sacctmgr") is None:
        return None
    query = ("show", "assoc", "where", f"user={getpass.getuser()}", "format=account,maxsubmit")
    status, answer = try_client("sacctmgr", "--noheader", "--parsable2", *query)
    if status:
        return None
    rows = [line.split("|") for line in answer.splitlines() if "|" in line]
    return [Association(account=row[0], max_submit=int(row[1]) if row[1].isdigit() else None) for row in rows]
