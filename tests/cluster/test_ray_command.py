"""How Ray's daemons are started: resources and ports from the allocation, devices of one vendor."""

from __future__ import annotations

from stateward.cluster.ray_command import one_vendor, start_command

ENV = {"SLURM_CPUS_ON_NODE": "8", "SLURM_MEM_PER_NODE": "8192", "CUDA_VISIBLE_DEVICES": "2"}


def test_only_what_was_allocated_and_only_ports_of_the_block() -> None:
    command = start_command("10.0.0.2", range(12_000, 12_220), ["--address=10.0.0.1:9"], gpus=1, env=ENV)
    options = dict(part.lstrip("-").split("=", 1) for part in command if part.startswith("--") and "=" in part)
    assert (options["num-cpus"], options["num-gpus"], options["address"]) == ("8", "1", "10.0.0.1:9")
    # A quarter of the allocation's 8 GB is the object store.
    assert (options["memory"], options["object-store-memory"]) == (str(6144 << 20), str(2048 << 20))
    ports = [int(value) for name, value in options.items() if name.endswith("-port")]
    assert len(ports) == len(set(ports)) == 7
    assert set(ports) <= set(range(12_000, 12_220))


def test_devices_are_named_in_one_vendors_variable() -> None:
    others = {"ROCR_VISIBLE_DEVICES": "0", "GPU_DEVICE_ORDINAL": "0", "ZE_AFFINITY_MASK": "0"}
    assert one_vendor({**ENV, **others}) == ENV
    assert one_vendor(others) == others
