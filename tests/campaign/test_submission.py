"""The chain as it is printed before anything is submitted."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from stateward.campaign.link import Link
from stateward.campaign.preview import table
from stateward.cluster.profile import Role, load_profile

ROOT = Path(__file__).parents[2]


@pytest.fixture
def dry_run(run_job: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path) -> Callable[..., str]:
    """What the pipeline prints with `--dry-run` for a cluster."""

    def printed(*arguments: str) -> str:
        shared = ("--config", ROOT / "configs" / "practice.yaml", "--run-dir", tmp_path / "it's a run; here")
        options = ("--cluster", "practice", "--dry-run", *arguments)
        # No Slurm is on PATH: nothing may be asked.
        done = run_job("pipeline", *shared, *options, cwd=tmp_path, env={"PATH": str(tmp_path)})
        assert done.returncode == 0, done.stderr
        assert list(tmp_path.iterdir()) == []
        return done.stdout

    return printed


def test_a_dry_run_prints_every_job_and_file_and_touches_nothing(dry_run: Callable[..., str]) -> None:
    text = dry_run("--shards", "3")
    for name in ("curate.sh", "train.sh", "merge.sh", "report.sh", "probe: an array", "base: an array"):
        assert f"── {name}" in text
    assert text.count("shard-0002.json") == 3
    assert "#SBATCH --dependency=afterany:<base>,afterany:<tuned>" in text.replace("'", "")
    assert "#SBATCH --kill-on-invalid-dep=yes" in text
    # 3 × 3 array tasks of two hours with one GPU, and a training job of one.
    assert text.splitlines()[8].split() == ["total", "20.0"]


def test_several_trainings_share_the_pool_and_the_base(dry_run: Callable[..., str], tmp_path: Path) -> None:
    text = dry_run("--shards", "3", "--seeds", "2", "train.seed=7")
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
    scripts = {part.split("\n", 1)[0].split(":")[0]: part for part in unquoted.split("── ")[1:]}
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


def test_many_trainings_are_told_by_the_first_and_the_last(dry_run: Callable[..., str]) -> None:
    text = dry_run("--shards", "3", "--seeds", "1000")
    assert len(text.splitlines()) < 300
    assert max(map(len, text.splitlines())) < 3_000
    plan = [line.split() for line in text.splitlines()[1:10]]
    assert [row[0] for row in plan[3:7]] == ["train-seed1", "merge-seed1", "tuned-seed1", "seeds"]
    # 999 times a training job of two hours and 3 array tasks of two hours, with one GPU each.
    assert plan[6] == ["seeds", "2", "to", "1000", "999", "×", "as", "seed", "1", "7992.0"]
    assert plan[-1] == ["total", "8012.0"]
    first, last = (text.split(f"── train-seed{k}.sh")[1].split("── ")[0].splitlines() for k in (1, 1000))
    assert last[0] == ": as train-seed1.sh but for these lines; those of seeds 2 to 999 likewise"
    assert "#SBATCH --job-name=practice-train-seed1000" in last
    assert not {line for line in last if line} & set(first), "what they share is told once"


def link(name: str, training: int = 0, *, done: bool = False) -> Link:
    return Link(name=name, kind="job", role=Role(partition="p", gpus=2, time="1:00:00"), done=done, training=training)


def test_trainings_that_do_not_stand_alike_are_told_apart() -> None:
    links = [link("probe"), *(link(f"train-seed{k}", k, done=k in (1, 2, 3, 6)) for k in range(1, 11))]
    profile = load_profile(ROOT / "configs" / "cluster" / "practice.yaml")
    rows = [line.split("  ")[0] for line in table(links, profile)[2:]]
    hours = [line.split()[-1] for line in table(links, profile)[2:]]
    assert rows[:-1] == [
        *("train-seed1", "seeds 2 to 3", "train-seed4", "train-seed5", "train-seed6", "train-seed7", "seeds 8 to 10")
    ]
    assert hours == ["0.0", "0.0", "2.0", "2.0", "0.0", "2.0", "6.0", "14.0"]
