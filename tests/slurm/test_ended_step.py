"""A step whose processes need Slurm's whole patience to end, on a real Slurm."""

from __future__ import annotations

from pathlib import Path

import pytest

from stateward.cluster.one_machine import OneMachineSlurm

pytestmark = [pytest.mark.slurm, pytest.mark.slow, pytest.mark.timeout(300)]

#: Two tasks, of which one ends badly and the other takes no notice of SIGTERM.
JOB = """\
#!/bin/bash
srun --kill-on-bad-exit=1 bash -c 'trap "" TERM; [ $SLURM_PROCID = 0 ] || exit 3; while :; do sleep 1; done'
"""


def test_the_controller_waits_for_a_step_to_end_and_does_not_end_it_again(
    slurm: OneMachineSlurm, tmp_path: Path
) -> None:
    """What a node does not answer in time the controller sends again after a minute. A job that was requeued has begun
    anew by then, its step has the same number, and would be ended by that."""
    log = slurm.root / "log" / "slurmctld.log"
    before = len(log.read_text())
    script = tmp_path / "job.sh"
    script.write_text(JOB)
    out = tmp_path / "out.log"
    done = slurm.run("sbatch", "--wait", "--partition=gpu", "--nodes=2", f"--output={out}", str(script))
    assert done.returncode != 0
    assert "Killed" in out.read_text()  # by SIGKILL: it took the whole of KillWait
    assert "timed out" not in log.read_text()[before:]
