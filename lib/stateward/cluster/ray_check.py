"""Prove a fresh Ray cluster before a model loads: ``python -m stateward.cluster.ray_check ADDRESS NODES``.

All nodes have registered, every device is a different one, and an all-reduce over one process a device gives the right
sum. One line each; the exit status is 0 only if all of it holds.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from typing import Any

_DEADLINE_SECONDS = 300.0


def main(address: str, nodes: int) -> int:
    import ray

    ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    try:
        return 0 if _nodes(nodes) and _devices() else 1
    finally:
        ray.shutdown()


def _nodes(expected: int) -> bool:
    import ray

    deadline = time.monotonic() + _DEADLINE_SECONDS
    while True:
        alive = [node for node in ray.nodes() if node["Alive"]]
        if len(alive) == expected:
            break
        if time.monotonic() > deadline:
            seen = ", ".join(node["NodeManagerAddress"] for node in alive)
            print(f"check: {len(alive)} of {expected} nodes registered: {seen}", flush=True)
            return False
        time.sleep(0.2)
    total = ray.cluster_resources()
    print(f"check: {expected} nodes, {total.get('CPU', 0):g} CPUs, {total.get('GPU', 0):g} devices", flush=True)
    return True


def _devices() -> bool:
    import ray

    number = int(ray.cluster_resources().get("GPU", 0))
    if number == 0:
        return True
    actor = ray.remote(num_gpus=1, num_cpus=1)(_Device)
    actors = [actor.remote(rank, number) for rank in range(number)]
    places = ray.get([a.place.remote() for a in actors], timeout=_DEADLINE_SECONDS)
    if len(set(places)) != number:
        twice = sorted({p for p in places if places.count(p) > 1})
        print(f"check: several processes were given the same device: {twice}", flush=True)
        return False
    rendezvous = ray.get(actors[0].offer.remote())
    sums = ray.get([a.all_reduce.remote(rendezvous) for a in actors], timeout=_DEADLINE_SECONDS)
    expected = float(number * (number + 1) // 2)
    if set(sums) != {expected}:
        print(f"check: the all-reduce over {number} devices gave {sums}, not {expected:g}", flush=True)
        return False
    print(f"check: {number} distinct devices, all-reduce {expected:g}", flush=True)
    return True


class _Device:
    """One process that holds one device."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size

    def place(self) -> tuple[str, str]:
        """Node and device, as this process sees them."""
        import ray

        ids = ",".join(str(i) for i in ray.get_gpu_ids())
        return ray.get_runtime_context().get_node_id(), os.environ.get("CUDA_VISIBLE_DEVICES", ids) or ids

    def offer(self) -> str:
        import ray

        host = ray.util.get_node_ip_address()
        with socket.socket() as probe:
            probe.bind((host, 0))
            return f"tcp://{host}:{probe.getsockname()[1]}"

    def all_reduce(self, rendezvous: str) -> float:
        import torch
        import torch.distributed as dist

        backend, device = ("nccl", "cuda") if torch.cuda.is_available() else ("gloo", "cpu")
        dist.init_process_group(backend, init_method=rendezvous, rank=self.rank, world_size=self.size)
        try:
            value: Any = torch.tensor([float(self.rank + 1)], device=device)
            dist.all_reduce(value)
            return float(value.item())
        finally:
            dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
