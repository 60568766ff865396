"""One job of a campaign's chain, before it is submitted and after."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from stateward.cluster.profile import Role


@dataclass(kw_only=True)
class Link:
    """One job of the chain.

    Attributes:
        name: of the link and of its Slurm job. kind: ``array``, ``job`` or ``het``.
        needs, continues: names of links that it waits for, by afterok and by afterany.
        done: whether the stage behind it stands already.
        beside: of a heterogeneous job, the role of its third component, if it has one.
        shards: of an array. commands: of a job, run one after the other.
        run_dir, arguments: of the training of a heterogeneous job: where it writes, and the arguments of its command.
        training: which of several trainings it belongs to, from 1; 0: to none of them.
        jobs: Slurm's ids of what was submitted. changed: what differs from the settings that queued jobs have.
    """

    name: str
    kind: str
    role: Role
    done: bool
    needs: tuple[str, ...] = ()
    continues: tuple[str, ...] = ()
    shards: list[Path] = field(default_factory=list)
    commands: list[list[str]] = field(default_factory=list)
    run_dir: Path = Path()
    arguments: list[str] = field(default_factory=list)
    beside: Role | None = None
    training: int = 0
    jobs: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)

    def shape(self, tasks_at_most: int) -> str:
        """What it holds, in words: devices, or CPUs where it has none, for every array task."""
        each = f"{self.role.nodes} × {self.role.gpus} GPUs" if self.role.gpus else f"{self.role.cpus} CPUs"
        if self.kind == "array":
            each = f"{min(len(self.shards), tasks_at_most or len(self.shards))} tasks of {each}"
        return f"{each} + {self.beside.gpus}" if self.beside else each

    def gpu_hours(self, tasks_at_most: int, seconds: int) -> float:
        """The most that this link can take: devices × nodes × time limit, for every array task."""
        tasks = min(len(self.shards), tasks_at_most or len(self.shards)) if self.kind == "array" else 1
        devices = sum(role.nodes * role.gpus for role in (self.role, self.beside) if role)
        return tasks * devices * seconds / 3600
