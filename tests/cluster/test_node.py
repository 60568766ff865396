"""What a node of a job knows of itself: rank, allocation, address, ports, scratch."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import psutil
import pytest

from stateward.cluster.node import (
    StepRank,
    allocated,
    cache_environment,
    node_address,
    port_block,
    scratch_folder,
)
from stateward.cluster.profile import load_profile
from stateward.errors import UserError

STEP = {"SLURM_PROCID": "2", "SLURM_NTASKS": "4", "SLURMD_NODENAME": "gpu2", "SLURM_JOB_ID": "8"}


def test_rank_comes_from_the_step_and_the_job_from_its_leader() -> None:
    step = StepRank.from_environment({**STEP, "SLURM_HET_JOB_ID": "7", "SLURM_RESTART_COUNT": "3"})
    assert step == StepRank(rank=2, size=4, node="gpu2", job="7", restart=3)
    with pytest.raises(UserError, match="SLURM_PROCID"):
        StepRank.from_environment({})


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        (
            {"SLURM_CPUS_ON_NODE": "8", "SLURM_MEM_PER_NODE": "4096", "CUDA_VISIBLE_DEVICES": "0,3"},
            (8, 4096, ["0", "3"]),
        ),
        ({"SLURM_CPUS_ON_NODE": "2", "SLURM_MEM_PER_CPU": "100"}, (2, 200, [])),
        ({"SLURM_CPUS_ON_NODE": "2", "SLURM_MEM_PER_NODE": "1", "CUDA_VISIBLE_DEVICES": "NoDevFiles"}, (2, 1, [])),
        ({"SLURM_CPUS_ON_NODE": "2", "SLURM_MEM_PER_NODE": "1", "SLURM_STEP_GPUS": "4,5"}, (2, 1, ["4", "5"])),
    ],
)
def test_only_what_was_allocated(env: dict[str, str], expected: tuple[int, int, list[str]]) -> None:
    assert allocated(env) == expected


HET = {
    "SLURM_HET_SIZE": "3",
    **{f"SLURM_NTASKS_HET_GROUP_{component}": tasks for component, tasks in enumerate(("1", "3", "1"))},
    "SLURM_MEM_PER_NODE": "1200",
    "SLURM_MEM_PER_NODE_HET_GROUP_0": "1200",
    "SLURM_CPUS_ON_NODE": "4",
}


@pytest.mark.parametrize(
    ("rank", "more", "memory"),
    [
        ("0", {}, 1200),
        ("1", {"SLURM_MEM_PER_NODE_HET_GROUP_1": "5000"}, 5000),
        ("3", {"SLURM_MEM_PER_NODE_HET_GROUP_1": "5000"}, 5000),
        ("2", {"SLURM_MEM_PER_CPU_HET_GROUP_1": "700"}, 2800),
        ("2", {}, psutil.virtual_memory().total >> 20),  # --mem=0 is in no variable: the node is whole
    ],
)
def test_the_memory_of_a_rank_is_its_components(rank: str, more: dict[str, str], memory: int) -> None:
    """Slurm's variable without a suffix holds the first component's on every node."""
    assert allocated({**HET, "SLURM_PROCID": rank, **more})[1] == memory


def test_nodes_on_one_machine_have_addresses_of_their_own() -> None:
    assert [node_address("loopback", rank) for rank in range(3)] == ["127.0.0.2", "127.0.0.3", "127.0.0.4"]


def test_an_interface_that_is_not_there_lists_those_that_are() -> None:
    with pytest.raises(UserError) as caught:
        node_address("ib7", 0)
    assert "lo" in caught.value.why


def test_two_jobs_on_a_node_do_not_meet() -> None:
    first = port_block("1201", 0, "127.0.0.2")
    assert set(first).isdisjoint(port_block("1202", 0, "127.0.0.2"))
    assert first[0] >= 10_000
    assert first[-1] < 32_768
    with socket.socket() as foreign:  # somebody holds a port of the job's block
        foreign.bind(("127.0.0.2", first[3]))
        assert set(first).isdisjoint(port_block("1201", 0, "127.0.0.2"))


def test_a_long_scratch_is_refused_with_the_limit() -> None:
    with pytest.raises(UserError, match="130 bytes") as caught, scratch_folder("/" + "x" * 129, "12", 0):
        pass
    assert "107" in caught.value.why


def test_scratch_is_private_short_and_gone_afterwards(tmp_path: Path) -> None:
    with scratch_folder("/tmp", "12", 3) as folder:
        assert len(os.fsencode(str(folder))) <= 45
        assert folder.stat().st_mode & 0o077 == 0
        caches = cache_environment(folder)
        assert all(Path(path).is_dir() for path in caches.values())
        assert {"TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "VLLM_CACHE_ROOT"} <= set(caches)
    assert not folder.exists()


def test_a_long_scratch_is_refused_when_the_profile_is_read(tmp_path: Path) -> None:
    """At submission, not hours later on a node."""
    text = (Path(__file__).parents[2] / "configs" / "cluster" / "h100.yaml").read_text()
    profile = tmp_path / "profile.yaml"
    profile.write_text(text.replace("scratch: /tmp ", f"scratch: /{'x' * 129} "))
    with pytest.raises(UserError, match="130 bytes") as caught:
        load_profile(profile)
    assert "107" in caught.value.why
