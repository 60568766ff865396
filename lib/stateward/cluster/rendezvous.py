"""How the ranks of one job step find each other: small files in a folder of the shared run directory.

The folder is one a start (job id and restart count), so that a restart never reads what an earlier start wrote. Every
node proves there that it sees the shared file system, by answering a canary that rank 0 wrote.
"""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from stateward.errors import SystemFault
from stateward.store.stage import write_json

_POLL_SECONDS = 0.2
#: Folder of all starts, below the run's shared folder.
RENDEZVOUS = "rendezvous"
#: In a start's folder: written by rank 0 when the start begins.
CANARY = "canary.json"


@dataclass(frozen=True, kw_only=True)
class NodeReport:
    """What one rank says of its node.

    Attributes:
        rank: 0 is the head. name: Slurm's name of the node. address: of the interface that Ray and NCCL use.
        cpus, memory_mb: as allocated to the job on this node. devices: device indices that the job was given.
        canary: what this node read in the canary file.
        scratch_free_mb: room in the node's private scratch.
        withheld: what the rank may not use of the allocation, as `limits.withheld` says it.
    """

    rank: int
    name: str
    address: str
    cpus: int
    memory_mb: int
    devices: list[str]
    canary: str
    scratch_free_mb: int
    withheld: list[str]


class Rendezvous:
    """One start of one job, as seen from `rank` of `size` ranks."""

    def __init__(self, folder: Path, *, rank: int, size: int, deadline_seconds: float) -> None:
        self.folder, self.rank, self.size = folder, rank, size
        self._deadline = time.monotonic() + deadline_seconds
        self._seconds = deadline_seconds

    @property
    def left(self) -> float:
        """Seconds until this start's deadline; negative once it has passed."""
        return self._deadline - time.monotonic()

    def open(self) -> None:
        """Rank 0: make the folder with its canary and the token that only this user can read."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        token = os.open(self.token, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(token, "w") as file:
            file.write(secrets.token_hex(32))
        write_json(self.folder / CANARY, {"canary": secrets.token_hex(8)})

    @property
    def token(self) -> Path:
        """File of Ray's token, mode 0600."""
        return self.folder / "ray-token"

    def canary(self) -> str:
        """What the canary file says, once this node sees it."""
        value = self.read(CANARY, "the canary file of rank 0")
        return str(value["canary"])

    def report(self, node: NodeReport) -> None:
        write_json(self.folder / f"node-{node.rank}.json", asdict(node))

    def reports(self, node_of: Callable[[int], str] = lambda rank: "") -> list[NodeReport]:
        """All ranks' reports, in order of rank, once they are there. A missing one is named by its rank and node."""

        def missing() -> list[int]:
            return [r for r in range(self.size) if not (self.folder / f"node-{r}.json").is_file()]

        def named() -> str:
            ranks = ", ".join(f"{rank} {node_of(rank)}".strip() for rank in missing())
            return f"no report of rank {ranks}; what it said last stands above, or its node does not see {self.folder}"

        self.wait(lambda: not missing(), named)
        rows = [json.loads((self.folder / f"node-{r}.json").read_text()) for r in range(self.size)]
        return [NodeReport(**row) for row in rows]

    def write(self, name: str, value: dict[str, Any]) -> None:
        write_json(self.folder / name, value)

    def read(self, name: str, what: str) -> dict[str, Any]:
        """A file of another rank, once it is there."""
        path = self.folder / name
        self.wait(path.is_file, lambda: f"{what} did not appear in {self.folder}")
        value: dict[str, Any] = json.loads(path.read_text())
        return value

    def wait(self, true: Callable[[], bool], missing: Callable[[], str]) -> None:
        """Poll the shared folder until `true`.

        Raises:
            SystemFault("cluster"): the start's deadline passed (the text says what was missing), or a rank gave up.
        """
        while not true():
            if gone := self.given_up():
                raise SystemFault("cluster", gone)
            if time.monotonic() > self._deadline:
                raise SystemFault("cluster", f"not within {self._seconds:g} s: {missing()}")
            time.sleep(_POLL_SECONDS)

    def give_up(self, node: str, cause: str) -> None:
        """Tell the other ranks, so that none of them waits for its whole deadline."""
        if self.folder.is_dir():
            write_json(self.folder / f"failed-{self.rank}.json", {"rank": self.rank, "node": node, "cause": cause})

    def given_up(self) -> str:
        """Which rank gave up, and why: the first in order of rank; empty if none did."""
        for path in sorted(self.folder.glob("failed-*.json")):
            row = json.loads(path.read_text())
            return f"rank {row['rank']} on {row['node']} gave up: {row['cause']}"
        return ""

    def leave(self, seconds: float) -> bool:
        """Say that nothing of this rank is left, and wait a while until all have said so; whether they have."""
        if not self.folder.is_dir():
            return False
        write_json(self.folder / f"gone-{self.rank}.json", {})
        deadline = time.monotonic() + seconds
        while not all((self.folder / f"gone-{rank}.json").is_file() for rank in range(self.size)):
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_SECONDS)
        return True


def start_folder(shared: Path, env: Mapping[str, str]) -> Path:
    """The folder of this start below the run's shared folder: one a job and restart.

    The leader's id of a heterogeneous job is the same on every component.
    """
    job = env.get("SLURM_HET_JOB_ID") or env["SLURM_JOB_ID"]
    return shared / RENDEZVOUS / f"{job}-{env.get('SLURM_RESTART_COUNT', '0')}"


def check_reports(reports: list[NodeReport], canary: str) -> list[str]:
    """What is wrong with the nodes as they reported themselves; empty if all is well."""
    problems = []
    for node in reports:
        if node.canary != canary:
            problems.append(f"{node.name} (rank {node.rank}) reads another canary: it does not see the shared folder")
        if len(set(node.devices)) != len(node.devices):
            problems.append(f"{node.name} (rank {node.rank}) was given the same device twice: {node.devices}")
        problems += [f"{node.name} (rank {node.rank}) {problem}" for problem in node.withheld]
    addresses = [node.address for node in reports]
    for address in sorted({a for a in addresses if addresses.count(a) > 1}):
        names = ", ".join(f"{n.name} (rank {n.rank})" for n in reports if n.address == address)
        problems.append(f"{names} have the same address {address}: set network_interface in the cluster profile")
    return problems
