"""A real Slurm on this machine for the tests of this folder, started once and ended at the end."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from small_campaign import SmallCampaign
from stateward.cluster.one_machine import OneMachineSlurm, free_port_base
from stateward.cluster.profile import ClusterProfile, load_profile

ROOT = Path(__file__).parents[2]


def port_base() -> int:
    """Each of pytest's processes looks in a range of its own, so that two of them do not take the same."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 5
    return free_port_base(20_000 + 2_000 * worker, 22_000 + 2_000 * worker)


@contextmanager
def one_machine_slurm(**options: Any) -> Iterator[OneMachineSlurm]:
    missing = [name for name in ("slurmctld", "slurmd", "munged") if not shutil.which(name, path="/usr/sbin:/usr/bin")]
    if missing:
        pytest.skip(f"no Slurm on this machine: {', '.join(missing)} not installed (make system)")
    folder = Path(tempfile.mkdtemp(prefix="ps-", dir="/tmp"))
    folder.chmod(0o755)
    cluster = OneMachineSlurm(root=folder, port_base=port_base(), **options)
    try:
        cluster.up()
        yield cluster
    finally:
        cluster.down()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def slurm() -> Iterator[OneMachineSlurm]:
    accounting = bool(shutil.which("mariadbd"))
    # Limits are enforced where accounting can keep them, as on most clusters; none is set but where a test sets one.
    with one_machine_slurm(accounting=accounting, enforce="limits" if accounting else "") as cluster:
        yield cluster


@pytest.fixture(scope="session")
def without_accounting() -> Iterator[OneMachineSlurm]:
    """A second cluster without slurmdbd: no sacct, no accounts."""
    with one_machine_slurm(accounting=False) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def campaign(tmp_path_factory: pytest.TempPathFactory, slurm: OneMachineSlurm) -> SmallCampaign:
    """A whole campaign that was killed on the way and ended."""
    small = SmallCampaign(tmp_path_factory.mktemp("chain") / "it's a run; here", slurm)
    small.prepare()
    small.run_with_a_kill()
    return small


@pytest.fixture(scope="session")
def binding() -> Iterator[OneMachineSlurm]:
    """A cluster that binds each task to one core, unless srun is told otherwise."""
    with one_machine_slurm(accounting=False, binding=True) as cluster:
        yield cluster


def log_in(cluster: OneMachineSlurm, monkeypatch: pytest.MonkeyPatch) -> OneMachineSlurm:
    for name in [n for n in os.environ if n.startswith(("SLURM_", "SBATCH_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("SLURM_CONF", cluster.env["SLURM_CONF"])
    monkeypatch.setenv("PATH", cluster.env["PATH"])
    return cluster


def emptied(cluster: OneMachineSlurm) -> None:
    """No job of a test outlives it: the next one starts on an empty cluster, with no limit half used."""
    deadline = time.monotonic() + 240
    while queued := cluster.run("squeue", "--noheader", "--format=%A %t", check=True).stdout.split():
        assert time.monotonic() < deadline, f"jobs that cannot be ended: {queued}"
        cluster.run("scancel", "--user=root", check=True)
        time.sleep(0.2)


@pytest.fixture
def on_cluster(slurm: OneMachineSlurm, monkeypatch: pytest.MonkeyPatch) -> Iterator[OneMachineSlurm]:
    """This process as a login node of the cluster."""
    yield log_in(slurm, monkeypatch)
    emptied(slurm)


@pytest.fixture
def on_plain_cluster(without_accounting: OneMachineSlurm, monkeypatch: pytest.MonkeyPatch) -> Iterator[OneMachineSlurm]:
    """This process as a login node of the cluster without accounting."""
    yield log_in(without_accounting, monkeypatch)
    emptied(without_accounting)


@pytest.fixture
def on_binding_cluster(binding: OneMachineSlurm, monkeypatch: pytest.MonkeyPatch) -> Iterator[OneMachineSlurm]:
    """This process as a login node of the cluster that binds tasks."""
    yield log_in(binding, monkeypatch)
    emptied(binding)


def cluster_state() -> str:
    """Slurm's own account of its jobs and nodes, of the cluster that this process is logged in to."""
    shown = [subprocess.run(["scontrol", "show", what], capture_output=True, text=True) for what in ("jobs", "nodes")]
    return "\n".join(done.stdout + done.stderr for done in shown)


@pytest.fixture
def profile() -> ClusterProfile:
    return load_profile(ROOT / "configs" / "cluster" / "practice.yaml")


@pytest.fixture
def until() -> Callable[..., None]:
    """Wait for an event with a generous deadline; one that does not come says how the cluster stood."""

    def wait(true: Callable[[], bool], seconds: float = 240.0) -> None:
        deadline = time.monotonic() + seconds
        while not true():
            assert time.monotonic() < deadline, f"not within its deadline\n{cluster_state()}"
            time.sleep(0.1)

    return wait
