"""The chain as it is printed before anything is submitted."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_a_dry_run_prints_every_job_and_file_and_touches_nothing(tmp_path: Path) -> None:
    run_dir = tmp_path / "it's a run; here"
    command = [sys.executable, str(ROOT / "jobs" / "pipeline.py"), "--config", str(ROOT / "configs" / "practice.yaml")]
    command += ["--run-dir", str(run_dir), "--cluster", "practice", "--shards", "3", "--dry-run"]
    # No Slurm is on PATH: nothing may be asked.
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, env={"PATH": str(tmp_path)}, check=False
    )
    assert done.returncode == 0, done.stderr
    text = done.stdout
    assert list(tmp_path.iterdir()) == []
    for name in ("curate.sh", "train.sh", "merge.sh", "report.sh", "probe: an array", "base: an array"):
        assert f"── {name}" in text
    assert text.count("shard-0002.json") == 3
    assert "#SBATCH --dependency=afterany:<base>,afterany:<tuned>" in text.replace("'", "")
    assert "#SBATCH --kill-on-invalid-dep=yes" in text
    # 3 × 3 array tasks of two hours with one GPU, and a training job of one.
    assert text.splitlines()[8].split() == ["total", "20.0"]
