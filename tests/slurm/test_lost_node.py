"""A node that is lost under a training job, on a real Slurm."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from stateward.cluster.batch import training_job
from stateward.cluster.one_machine import OneMachineSlurm
from stateward.cluster.processes import carrying
from stateward.cluster.profile import ClusterProfile
from stateward.cluster.scheduler import queue, submit

pytestmark = [pytest.mark.slurm, pytest.mark.slow, pytest.mark.timeout(900)]

#: In the place of python in the training job: a rank that ends once it is told to. As the judge of a failed start it
#: says no.
RANK = """\
#!/bin/bash
[ "$2" != stateward.cluster.retry ] || exit 1
echo "$SLURM_PROCID ${SLURM_RESTART_COUNT:-0}" >> "$NOTES"
until [ -e "$NOTES.end" ]; do sleep 0.2 & wait $!; done
"""


def kill_node(cluster: OneMachineSlurm, node: str) -> None:
    """All of a node at once, as when its power goes: Slurm's daemons and what jobs run there."""
    doomed = []
    for process, _ in carrying({"SLURM_CONF": cluster.env["SLURM_CONF"], "SLURMD_NODENAME": node}):
        try:
            doomed += [p for p in process.parents() if p.name().startswith("slurmstepd")] + [process]
        except psutil.NoSuchProcess:
            continue
    cluster.stop_daemon(f"slurmd-{node}", signal.SIGKILL)
    for process in doomed:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue


def test_a_node_that_is_lost_and_back_at_once_does_not_hold_the_job_for_ever(
    on_cluster: OneMachineSlurm,
    profile: ClusterProfile,
    tmp_path: Path,
    until: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Slurm does not tell srun of it: without a bound the step waits for a rank that is no more."""
    rank, notes, script = tmp_path / "rank.sh", tmp_path / "notes", tmp_path / "job.sh"
    rank.write_text(RANK)
    rank.chmod(0o755)
    monkeypatch.setenv("NOTES", str(notes))
    text = training_job(
        profile=profile,
        name="lost",
        log=tmp_path / "job.log",
        config="c",
        run_dir=str(tmp_path / "run"),
        python=str(rank),
        home=str(tmp_path),
    )
    script.write_text(text)
    job = submit(script)
    until(lambda: notes.exists() and len(notes.read_text().splitlines()) == 4)
    kill_node(on_cluster, "gpu2")
    on_cluster.start_node("gpu2")
    (tmp_path / "notes.end").touch()

    def ended() -> bool:
        return not [row for row in queue([job]) if row.state in ("RUNNING", "COMPLETING", "PENDING")]

    until(ended, seconds=400)
    on_cluster.run("scancel", job)
