"""The chain as it is printed before anything is submitted."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def dry_run(tmp_path: Path, *arguments: str) -> str:
    run_dir = tmp_path / "it's a run; here"
    command = [sys.executable, str(ROOT / "jobs" / "pipeline.py"), "--config", str(ROOT / "configs" / "practice.yaml")]
    command += ["--run-dir", str(run_dir), "--cluster", "practice", "--dry-run", *arguments]
    # No Slurm is on PATH: nothing may be asked.
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, env={"PATH": str(tmp_path)}, check=False
    )
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.iterdir()) == []
    return done.stdout


def test_a_dry_run_prints_every_job_and_file_and_touches_nothing(tmp_path: Path) -> None:
    text = dry_run(tmp_path, "--shards", "3")
    for name in ("curate.sh", "train.sh", "merge.sh", "report.sh", "probe: an array", "base: an array"):
        assert f"── {name}" in text
    assert text.count("shard-0002.json") == 3
    assert "#SBATCH --dependency=afterany:<base>,afterany:<tuned>" in text.replace("'", "")
    assert "#SBATCH --kill-on-invalid-dep=yes" in text
    # 3 × 3 array tasks of two hours with one GPU, and a training job of one.
    assert text.splitlines()[8].split() == ["total", "20.0"]


def test_several_trainings_share_the_pool_and_the_base(tmp_path: Path) -> None:
    text = dry_run(tmp_path, "--shards", "3", "--seeds", "2", "train.seed=7")
    plan = [line.split() for line in text.splitlines()[1:12]]
    of_seeds = [f"{name}-seed{k}" for k in (1, 2) for name in ("train", "merge", "tuned")]
    assert [row[0] for row in plan] == ["probe", "base", "curate", *of_seeds, "report", "total"]
    waits = {row[0]: row[2] for row in plan[:-1]}
    assert [waits[name] for name in of_seeds] == [
        *("curate", "train-seed1", "merge-seed1"),
        *("curate", "train-seed2", "merge-seed2"),
    ]
    # 4 × 3 array tasks of two hours with one GPU, and two training jobs of one.
    assert plan[-1] == ["total", "28.0"]
    unquoted = text.translate(str.maketrans("", "", "'\""))
    scripts = {part.split("\n", 1)[0]: part for part in unquoted.split("── ")[1:]}
    run_dir = f"{tmp_path}/its a run; here"
    for k, seed in ((1, 8), (2, 9)):
        own = f"{run_dir}/seeds/{k}"
        train, merge = scripts[f"train-seed{k}.sh"], scripts[f"merge-seed{k}.sh"]
        assert f"RUN_DIR=${{RUN_DIR:-{own}}}" in train
        # What comes last counts; the evaluation does not depend on it.
        assert f"--pool {run_dir}/pool/train.yaml train.seed=7 train.seed={seed} $@" in train
        assert (
            f"merge.py --config {ROOT}/configs/practice.yaml --run-dir {own} train.seed=7 train.seed={seed} &" in merge
        )
        assert f"--label tuned-seed{k} --model {own}/merged --write-plan --shards 3 train.seed=7\n" in merge
        assert f"--label tuned-seed{k} --model {own}/merged --finish train.seed=7 &" in scripts["report.sh"]
    edges = "--dependency=afterany:<base>,afterany:<tuned-seed1>,afterany:<tuned-seed2>"
    assert edges in scripts["report.sh"]
