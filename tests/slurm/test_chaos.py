"""A short run of the rounds that `make chaos` plays by the dozen: one campaign, hit twice."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slurm, pytest.mark.slow, pytest.mark.timeout(900)]


def test_a_campaign_that_is_hit_twice_ends_whole(tmp_path: Path) -> None:
    if not shutil.which("slurmctld", path="/usr/sbin:/usr/bin"):
        pytest.skip("no Slurm on this machine: slurmctld is not installed (make system)")
    tally = tmp_path / "tally.jsonl"
    command = [sys.executable, str(Path(__file__).parent / "chaos" / "run.py"), "--tally", str(tally)]
    done = subprocess.run(
        [*command, "--rounds", "2", "--seed", "11", "--at-most", "1"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    (row,) = [json.loads(line) for line in tally.read_text().splitlines()]
    assert len(row["hits"]) == 2
    assert row["problems"] == []
