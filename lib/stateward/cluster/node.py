"""This node of a job step: rank, address, what Slurm allocated to it, a block of ports, and private folders."""

from __future__ import annotations

import itertools
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from stateward.cluster.limits import withheld
from stateward.cluster.rendezvous import NodeReport
from stateward.errors import SystemFault, UserError

#: A Unix socket path has at most 107 bytes, and Ray appends up to 62 to its folder.
MAX_SCRATCH = 45
#: Blocks of ports lie above Ray's defaults (client server 10001, workers 10002 to 19999), which another user's Ray
#: takes and which Ray refuses to give to a second component, and below Linux's ephemeral range (32768 and up), which
#: clients take at random.
_FIRST_PORT, _LAST_PORT, _BLOCK = 20_000, 32_000, 220
_BLOCKS = (_LAST_PORT - _FIRST_PORT) // _BLOCK


#: Variable → folder of every just-in-time cache. They are node-local: on a shared file system they give stale handles
#: and hangs.
CACHES = {
    "TRITON_CACHE_DIR": "triton",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "TORCH_EXTENSIONS_DIR": "extensions",
    "VLLM_CACHE_ROOT": "vllm",
    "FLASHINFER_WORKSPACE_BASE": "flashinfer",
    "CUDA_CACHE_PATH": "cuda",
    "NUMBA_CACHE_DIR": "numba",
    "XDG_CACHE_HOME": "xdg",
    "TMPDIR": "tmp",
}


@dataclass(frozen=True, kw_only=True)
class StepRank:
    """Where this process stands in a step over one or both components of a job.

    Ranks come from Slurm (PROCID), never from matching addresses: nodes can have several, or all the same.
    """

    rank: int
    size: int
    node: str
    job: str
    restart: int

    @classmethod
    def from_environment(cls, env: Mapping[str, str]) -> StepRank:
        """Read srun's variables. Raises UserError outside a job step."""
        try:
            return cls(
                rank=int(env["SLURM_PROCID"]),
                size=int(env["SLURM_NTASKS"]),
                node=env["SLURMD_NODENAME"],
                # The leader's id, the same on every component.
                job=env.get("SLURM_HET_JOB_ID") or env["SLURM_JOB_ID"],
                restart=int(env.get("SLURM_RESTART_COUNT", "0")),
            )
        except KeyError as error:
            raise UserError(
                f"{error.args[0]} is not set",
                "this runs as a step of a Slurm job",
                "start it with srun, as sbatch/ does",
            ) from error


def node_address(interface: str, rank: int) -> str:
    """The IPv4 address of this node that the others reach.

    `interface`: a device such as ``ib0``; empty for the default route's; ``loopback`` when every "node" is this
    machine, each with a loopback address of its own (127.0.0.1 is rewritten by Ray, so they start at 127.0.0.2).

    Raises:
        UserError: there is no such interface, or it has no IPv4 address.
    """
    if interface == "loopback":
        return f"127.0.0.{2 + rank}"
    if interface:
        found = psutil.net_if_addrs()
        for entry in found.get(interface, []):
            if entry.family == socket.AF_INET:
                return str(entry.address)
        raise UserError(
            f"network_interface={interface!r} has no IPv4 address on {socket.gethostname()}",
            f"the interfaces here are {', '.join(sorted(found))}",
            "name the one that all nodes share, or leave it empty for the default route's",
        )
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        # No packet is sent: connecting a datagram socket asks the kernel which source address it would use.
        probe.connect(("192.0.2.1", 9))
        address = str(probe.getsockname()[0])
    if address.startswith("127."):
        raise UserError(
            f"{socket.gethostname()} resolves its default route to {address}",
            "other nodes cannot reach a loopback address",
            "set network_interface in the cluster profile",
        )
    return address


def allocated(env: Mapping[str, str]) -> tuple[int, int, list[str]]:
    """CPUs, memory in MB and device indices of this job on this node, from Slurm's variables.

    Ray sees the whole node; what it may use is only this. Without a size of its memory (``--mem=0``) the node is whole.
    """
    cpus = int(env.get("SLURM_CPUS_ON_NODE") or env.get("SLURM_CPUS_PER_TASK") or "1")
    component = _component(env)
    memory = int(env.get(f"SLURM_MEM_PER_NODE{component}", "0"))
    if not memory:
        memory = int(env.get(f"SLURM_MEM_PER_CPU{component}", "0")) * cpus
    devices = env.get("CUDA_VISIBLE_DEVICES") or env.get("SLURM_STEP_GPUS") or env.get("SLURM_JOB_GPUS") or ""
    return (
        cpus,
        memory or psutil.virtual_memory().total >> 20,
        [d for d in devices.split(",") if d and d != "NoDevFiles"],
    )


def _component(env: Mapping[str, str]) -> str:
    """Suffix of the variables of this rank's component: those without one describe component 0 on every node.

    A step's ranks go through the components in order; empty where the job has none.
    """
    rank = int(env.get("SLURM_PROCID", "0"))
    for component in range(int(env.get("SLURM_HET_SIZE", "0"))):
        suffix = f"_HET_GROUP_{component}"
        tasks = int(env[f"SLURM_NTASKS{suffix}"])
        if rank < tasks:
            return suffix
        rank -= tasks
    return ""


def port_blocks(job: str, rank: int, address: str, restart: int = 0) -> Iterator[range]:
    """Blocks of ports that nobody on `address` holds at that moment, each another one than the block before.

    The first is keyed by the job and its restart: two jobs on a node begin at different blocks, and a job that comes
    back does not meet what was wrong with its ports before. A block with a port in use is passed over.

    Raises:
        SystemFault: no block is free.
    """
    digits = int("".join(c for c in job if c.isdigit()) or "0")
    in_use = 0
    for offset in itertools.count():
        # 7, 13 and 17 share no factor with the number of blocks, so each walk visits all of them.
        first = _FIRST_PORT + ((digits * 7 + rank + restart * 17 + offset * 13) % _BLOCKS) * _BLOCK
        block = range(first, first + _BLOCK)
        if all(_free(address, port) for port in block):
            in_use = 0
            yield block
        elif (in_use := in_use + 1) == _BLOCKS:
            raise SystemFault("cluster", f"no free block of {_BLOCK} ports on {address} below {_LAST_PORT}")


def _free(address: str, port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((address, port))
        except OSError:
            return False
    return True


def check_scratch(base: str, job: str = "12345678", rank: int = 99) -> None:
    """Refuse a base folder below which Ray's socket paths would pass 107 bytes, naming how long it may be."""
    limit = MAX_SCRATCH - len(f"/sw{job}-{rank}-") - 8
    if len(os.fsencode(base)) > limit:
        raise UserError(
            f"scratch={base!r} has {len(os.fsencode(base))} bytes",
            f"Ray's sockets lie below it and Linux allows 107 bytes a path, so it may have {limit}",
            "set scratch in the cluster profile to a short node-local path such as /tmp",
        )


@contextmanager
def scratch_folder(base: str, job: str, rank: int) -> Iterator[Path]:
    """A private node-local folder for this start: sockets, caches, temporary files. Removed at the end.

    Raises:
        UserError: `base` is so long that Ray's socket paths would pass 107 bytes, or cannot be written.
    """
    check_scratch(base, job, rank)
    try:
        folder = Path(tempfile.mkdtemp(prefix=f"sw{job}-{rank}-", dir=base))
    except OSError as error:
        raise UserError(f"scratch={base!r} cannot be written on {socket.gethostname()}", str(error)) from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def cache_environment(folder: Path) -> dict[str, str]:
    """`CACHES` as folders below `folder`, which are made."""
    for name in CACHES.values():
        (folder / name).mkdir(exist_ok=True)
    return {variable: str(folder / name) for variable, name in CACHES.items()}


def report_of(step: StepRank, address: str, canary: str, scratch: Path, env: Mapping[str, str]) -> NodeReport:
    """This node's report for the rendezvous."""
    cpus, memory, devices = allocated(env)
    return NodeReport(
        rank=step.rank,
        name=step.node,
        address=address,
        cpus=cpus,
        memory_mb=memory,
        devices=devices,
        canary=canary,
        scratch_free_mb=shutil.disk_usage(scratch).free >> 20,
        withheld=withheld(cpus, memory),
    )
