"""One rank of a training job by itself: what it does before Ray starts on its node."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from stateward.cluster.rendezvous import Rendezvous, start_folder

#: In the place of jobs/train.py: endpoints that answer only the node that is named.
DRIVER = """\
import os, sys
assert "--preflight" in sys.argv
print("asked from", os.environ["SLURMD_NODENAME"], flush=True)
sys.exit(4)
"""


@pytest.mark.timeout(300)
def test_a_node_that_the_endpoints_do_not_answer_ends_the_start_with_its_name(tmp_path: Path) -> None:
    step = {"SLURM_JOB_ID": "7", "SLURM_PROCID": "1", "SLURM_NTASKS": "2", "SLURMD_NODENAME": "gpu1"}
    step |= {"SLURM_CPUS_ON_NODE": "1", "SLURM_MEM_PER_NODE": "64"}
    head = Rendezvous(start_folder(tmp_path, step), rank=0, size=2, deadline_seconds=0)
    head.open()
    head.write("head.json", {"address": "127.0.0.1:1"})  # nobody is there: a rank that joins Ray fails otherwise
    head.write("gone-0.json", {})
    (tmp_path / "driver.py").write_text(DRIVER)
    command = [sys.executable, "-m", "stateward.cluster.ray_cluster", "--shared", str(tmp_path), "--preflight"]
    command += ["--interface", "loopback", "--deadline", "200", "--", sys.executable, str(tmp_path / "driver.py")]
    done = subprocess.run(command, env={**os.environ, **step}, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "asked from gpu1" in done.stdout
    told = json.loads((head.folder / "failed-1.json").read_text())
    assert told["node"] == "gpu1"
    assert "on this node the driver's preflight ended with status 4" in told["cause"]
    assert head.given_up().startswith("rank 1 on gpu1 gave up: ")
