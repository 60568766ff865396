"""The doctor on a real Slurm: a profile that fits, and what it says of ones that do not."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stateward.cluster import doctor
from stateward.cluster.one_machine import OneMachineSlurm
from stateward.errors import UserError

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
PRACTICE = ROOT / "configs" / "cluster" / "practice.yaml"


def examined(profile: Path, run_dir: Path, capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, str]:
    status = doctor.main([str(profile), "--run-dir", str(run_dir), *options])
    return status, capsys.readouterr().out


def changed(tmp_path: Path, *changes: tuple[str, str]) -> Path:
    text = PRACTICE.read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path = tmp_path / "profile.yaml"
    path.write_text(text)
    return path


def test_the_practice_profile_fits_the_practice_cluster(
    on_cluster: OneMachineSlurm, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, text = examined(PRACTICE, tmp_path / "it's a run; here", capsys)
    assert status == 0, text
    assert "BAD" not in text
    assert "sbatch (training job): Job" in text
    for node in ("cpu1", "gpu1", "gpu2", "gpu3"):
        assert f"ok   node {node}: sees the run directory" in text
    assert list((tmp_path / "it's a run; here").iterdir()) == []  # the canary is gone


def test_what_does_not_fit_is_said_with_what_to_change(
    on_cluster: OneMachineSlurm, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    profile = changed(
        tmp_path,
        ("gpu_type: h100", "gpu_type: h200"),
        ("service: { partition: cpu, cpus: 4", "service: { partition: cpus, cpus: 4"),
        ("small: { partition: cpu, cpus: 2, memory_gb: 8", "small: { partition: cpu, cpus: 2, memory_gb: 800"),
    )
    status, text = examined(profile, tmp_path, capsys)
    assert status == 1
    assert "BAD  service.partition: 'cpus' does not exist → did you mean 'cpu'?" in text
    assert "BAD  gpu_type: 'h200' is not in gpu → did you mean 'h100'?" in text
    assert "BAD  small.cpus/memory_gb: no node of cpu has 2 CPUs and 800 GB" in text
    assert "BAD  sbatch (training job): " in text
    assert "nodes: not probed" in text


@pytest.fixture
def hidden_on_gpu3(on_cluster: OneMachineSlurm, tmp_path: Path, until: Callable[..., None]) -> Iterator[Path]:
    """A folder that is there everywhere but on gpu3."""
    if os.geteuid() != 0:
        pytest.skip("a mount namespace needs root")

    def ready() -> bool:
        return on_cluster.run("sinfo", "-hn", "gpu3", "-o", "%T").stdout.split()[:1] == ["idle"]

    folder = tmp_path / "runs"
    folder.mkdir()
    on_cluster.stop_daemon("slurmd-gpu3")
    on_cluster.start_node("gpu3", hidden=folder)
    until(ready)
    yield folder
    on_cluster.stop_daemon("slurmd-gpu3")
    on_cluster.start_node("gpu3")
    until(ready)


def test_a_node_that_does_not_see_the_run_directory_is_named(
    hidden_on_gpu3: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, text = examined(PRACTICE, hidden_on_gpu3, capsys)
    assert status == 1
    assert f"BAD  node gpu3: does not see {hidden_on_gpu3} → " in text
    assert "ok   node gpu2: sees the run directory" in text


def test_nodes_that_cannot_start_the_image_say_why(
    on_cluster: OneMachineSlurm, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The probe starts as jobs do: in the image, whatever Python the nodes have."""
    profile = changed(tmp_path, ("name: practice", "name: practice\ncontainer: { image: /no/such.sif }"))
    status, text = examined(profile, tmp_path, capsys)
    assert status == 1
    told = "does not see the image /no/such.sif → put it on the file system that all nodes share"
    assert [line.endswith(told) for line in text.splitlines() if line.startswith("BAD")] == [True, True], text
    assert "BAD  nodes of cpu: " in text
    assert "BAD  nodes of gpu: " in text


def test_a_limit_of_jobs_is_read_from_accounting(
    on_cluster: OneMachineSlurm, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if not on_cluster.accounting:
        pytest.skip("no slurmdbd on this machine")
    limit = ("sacctmgr", "-i", "modify", "user", "root", "set")
    try:
        on_cluster.run(*limit, "MaxSubmitJobs=13", check=True)
        status, text = examined(PRACTICE, tmp_path, capsys, "--wait", "0")
    finally:
        on_cluster.run(*limit, "MaxSubmitJobs=-1", check=True)
    assert status == 1
    assert "BAD  jobs a user: at most 13 may be queued, and every array task counts; max_array_tasks=4" in text
    assert "→ set max_array_tasks to 2" in text


def test_without_accounting_it_says_what_it_could_not_check(
    on_plain_cluster: OneMachineSlurm, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, text = examined(PRACTICE, tmp_path, capsys, "--wait", "0")
    assert status == 0, text
    assert "?    account: there is no accounting here (sacctmgr)" in text


def test_without_slurm_there_is_nothing_to_examine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="scontrol is not on PATH"):
        doctor.main([str(PRACTICE)])
