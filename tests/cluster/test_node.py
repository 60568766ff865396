"""What a node of a job knows of itself: rank, allocation, address, ports, scratch."""

from __future__ import annotations

import importlib
import itertools
import os
import socket
import subprocess
from pathlib import Path

import psutil
import pytest

from stateward.cluster import node
from stateward.cluster.node import (
    StepRank,
    allocated,
    cache_environment,
    node_address,
    port_blocks,
    scratch_folder,
)
from stateward.cluster.profile import load_profile
from stateward.cluster.ray_cluster import RayRank
from stateward.cluster.ray_command import start_command
from stateward.errors import SystemFault, UserError

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
    first = next(port_blocks("1201", 0, "127.0.0.2"))
    assert set(first).isdisjoint(next(port_blocks("1202", 0, "127.0.0.2")))
    for held in (first[3], first[-1]):  # somebody holds a port of the job's block
        with socket.socket() as foreign:
            foreign.bind(("127.0.0.2", held))
            assert set(first).isdisjoint(next(port_blocks("1201", 0, "127.0.0.2")))


def test_no_port_of_any_job_is_a_default_of_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray refuses to give two components one port, and its client server's 10001 stands even where it does not run."""
    monkeypatch.setattr(node, "_free", lambda *_: True)
    params = {p.name: p.default for p in importlib.import_module("ray.scripts.scripts").start.params}
    constants = importlib.import_module("ray._private.ray_constants")
    defaults = {constants.DEFAULT_PORT, constants.DEFAULT_DASHBOARD_PORT, constants.DEFAULT_DASHBOARD_AGENT_LISTEN_PORT}
    defaults |= {10_001, *range(params["min_worker_port"], params["max_worker_port"] + 1)}
    assert 10_002 in defaults
    blocks = {
        next(port_blocks(f"4711{ending:02d}", rank, "10.0.0.1", restart))
        for ending, restart in itertools.product(range(100), range(3))
        for rank in range(65)  # the head's node and 64 of workers
    }
    for ports in blocks:
        assert defaults.isdisjoint(ports)
        assert 1_024 < ports[0] < ports[-1] < 32_768


def test_ray_itself_finds_no_port_twice_in_any_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node, "_free", lambda *_: True)
    ray_params = importlib.import_module("ray._private.parameter").RayParams
    seen = set()
    for ports in itertools.islice(port_blocks("257", 3, "10.0.0.1"), 54):
        seen.add(ports[0])
        command = start_command("10.0.0.1", ports, [], gpus=0, env={"SLURM_MEM_PER_NODE": "1024"})
        given = dict(part.lstrip("-").split("=", 1) for part in command if "-port=" in part)
        params = ray_params(
            ray_client_server_port=10_001,  # of `ray start` on a node that is not the head
            object_manager_port=int(given["object-manager-port"]),
            node_manager_port=int(given["node-manager-port"]),
            metrics_agent_port=int(given["dashboard-agent-grpc-port"]),
            dashboard_agent_listen_port=int(given["dashboard-agent-listen-port"]),
            runtime_env_agent_port=int(given["runtime-env-agent-port"]),
            min_worker_port=int(given["min-worker-port"]),
            max_worker_port=int(given["max-worker-port"]),
        )
        params.update_pre_selected_port()  # raises ValueError for a port of two components
    assert len(seen) == 54  # every block there is


def test_a_restart_and_a_second_attempt_take_another_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node, "_free", lambda *_: True)
    blocks = port_blocks("257", 1, "127.0.0.2")
    first, second = next(blocks), next(blocks)
    again = next(port_blocks("257", 1, "127.0.0.2", restart=1))
    assert len({first[0], second[0], again[0]}) == 3


def test_a_start_of_ray_that_failed_is_tried_on_other_ports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`ray start` itself is stood in for: a real one fails on a port only if another process wins a race for it."""
    tried: list[list[str]] = []

    def start(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        tried.append([part for part in command if "port=" in part])
        return subprocess.CompletedProcess(command, returncode=int(len(tried) < 3), stdout="", stderr="port taken")

    monkeypatch.setenv("SLURM_JOB_ID", "8")
    rank = RayRank(StepRank.from_environment(STEP), tmp_path, interface="", scratch="/tmp", deadline_seconds=60.0)
    rank.address = "127.0.0.2"
    monkeypatch.setattr("stateward.cluster.ray_cluster.subprocess.run", start)
    ports = rank._start(tmp_path, rank._blocks(), [], gpus=0)
    assert len({command[0] for command in tried}) == 3
    assert f"--max-worker-port={ports[-1]}" in tried[-1]


def test_a_node_without_a_free_block_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node, "_free", lambda *_: False)
    with pytest.raises(SystemFault, match="no free block"):
        next(port_blocks("257", 1, "127.0.0.2"))


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
