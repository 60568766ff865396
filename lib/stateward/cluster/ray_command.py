"""How Ray's daemons are started on one node of an allocation: its ports, its resources, and what is switched off."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

from stateward.cluster.node import allocated

#: Places in a rank's block of ports (see `node.port_blocks`). The first is the head's own.
CLIENT_SERVER = 10
TYPESENSE = slice(11, 13)
_WORKERS = 20
_OTHER_VENDORS = {"ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "ZE_AFFINITY_MASK"}
_NAMED = ("node-manager", "object-manager", "runtime-env-agent", "dashboard-agent-grpc", "dashboard-agent-listen")


def start_command(
    address: str, ports: range, arguments: Sequence[str], *, gpus: int, env: Mapping[str, str]
) -> list[str]:
    """``ray start`` with every resource as Slurm allocated it and every port from the rank's block.

    Ray would take the whole node's CPUs, memory and GPUs, and ports that another job's Ray has.
    """
    cpus, memory, _ = allocated(env)
    # The memory of the allocation, less what the object store takes as shared memory.
    store = max(128, min(memory // 4, 8_192))
    return [
        *(sys.executable, "-m", "ray.scripts.scripts", "start", "--disable-usage-stats", *arguments),
        "--include-log-monitor=false",  # a process a node that forwards logs to drivers; ours read none
        *(f"--node-ip-address={address}", f"--num-cpus={cpus}", f"--num-gpus={gpus}"),
        *(f"--memory={(memory - store) << 20}", f"--object-store-memory={store << 20}"),
        *(f"--{name}-port={ports[1 + i]}" for i, name in enumerate(_NAMED)),
        *(f"--min-worker-port={ports[_WORKERS]}", f"--max-worker-port={ports[-1]}"),
    ]


def one_vendor(env: Mapping[str, str]) -> dict[str, str]:
    """`env` with CUDA's variable of the devices alone. Slurm sets those of other vendors beside it wherever it was
    not built with the vendor's library, and Verl (0.9) refuses to start where it finds two."""
    if "CUDA_VISIBLE_DEVICES" not in env:
        return dict(env)
    return {name: value for name, value in env.items() if name not in _OTHER_VENDORS}


def quiet_environment() -> dict[str, str]:
    """Variables of Ray's processes: no idle workers in advance, no usage report, no metrics to a dashboard that is
    off, and no niceness, under which everything else on the node would go first."""
    return {
        "RAY_enable_worker_prestart": "0",
        "RAY_prestart_worker_first_driver": "0",
        "RAY_enable_metrics_collection": "0",
        "RAY_worker_niceness": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    }
