"""How many replicas serve a sampling stage, and on how many GPUs each: as published 16 × 8, or 32 × 4."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from stateward.campaign.sample_array import sample_role
from stateward.cluster.profile import ClusterProfile, load_profile
from stateward.config import Config, ServeConfig, load_config
from stateward.errors import UserError

ROOT = Path(__file__).parents[2]
CONFIG = ROOT / "configs" / "q38_full.yaml"
PRACTICE = [
    *("tasks.dataset=practice", "tasks.train=orders_train.yaml", "tasks.benchmark=orders_benchmark.yaml"),
    "policy.model=practice",
]
SMALLER = ["serve.tensor_parallel=4", "serve.replicas=32"]


@pytest.fixture
def profile() -> ClusterProfile:
    return load_profile(ROOT / "configs" / "cluster" / "h100.yaml")


def job(name: str, run_dir: Path, *arguments: str) -> None:
    """Run a stage's command in this process."""
    spec = importlib.util.spec_from_file_location(f"job_{name}", ROOT / "jobs" / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.main(["--config", str(CONFIG), "--run-dir", str(run_dir), *arguments, *PRACTICE]) == 0


@pytest.mark.parametrize(("overrides", "tasks", "gpus"), [([], 16, 8), (SMALLER, 32, 4)])
def test_the_plan_follows_the_replicas(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], overrides: list[str], tasks: int, gpus: int
) -> None:
    shape = f"{tasks} tasks of 1 × {gpus} GPUs"
    hours = tasks * gpus * 12  # of the role's time limit
    job("evaluate", tmp_path, "--label", "base", "--array", "--cluster", "h100", "--dry-run", *overrides)
    text = capsys.readouterr().out
    assert f"array on h100: {tasks} shards in {shape}, 12:00:00 each; {hours:,.1f} GPU hours at most" in text
    job("pipeline", tmp_path, "--cluster", "h100", "--dry-run", *overrides)
    text = capsys.readouterr().out
    for link in ("probe", "base", "tuned"):
        (row,) = [line for line in text.splitlines() if line.startswith(f"{link} ")]
        assert shape in row
        assert row.endswith(f" {hours:.1f}")
    assert text.count(f"#SBATCH --gres=gpu:h100:{gpus}\n") >= 3
    assert text.count(f"shard-{tasks - 1:04d}.json") == 3
    assert list(tmp_path.iterdir()) == []


def test_every_replica_gets_its_share_of_the_tasks(tmp_path: Path) -> None:
    job("evaluate", tmp_path, "--label", "base", "--write-plan", *SMALLER)
    plans = [json.loads(path.read_text()) for path in sorted((tmp_path / "eval/base/plan").glob("*.json"))]
    assert len(plans) == 32
    sizes = [len(plan["uids"]) for plan in plans]
    assert max(sizes) - min(sizes) <= 1
    uids = [uid for plan in plans for uid in plan["uids"]]
    assert len(uids) == len(set(uids)) == 38
    # The number of replicas is no condition of a comparison; how each of them is served is one.
    manifest = json.loads((tmp_path / "eval/base/manifest.json").read_text())
    assert manifest["inputs"]["server"]["tensor_parallel"] == 4
    assert "replicas" not in json.dumps(manifest["inputs"])
    assert len({(plan["policy"], plan["settings"]) for plan in plans}) == 1


def configured(*overrides: str) -> Config:
    return load_config(CONFIG, list(overrides))


def test_an_array_task_holds_what_its_replica_is_served_on(profile: ClusterProfile) -> None:
    smaller = configured(*SMALLER)
    assert sample_role(smaller, smaller.serve.devices, profile).gpus == 4
    assert ServeConfig(tensor_parallel=2, extra={"pipeline-parallel-size": 3}).devices == 6
    assert sample_role(smaller, 0, profile).gpus == 0, "an API model needs none"
    profile.sample.gpus = 4
    with pytest.raises(UserError, match=r"4 GPUs, and a replica is served on 8(?s:.*)serve\.tensor_parallel=4"):
        sample_role(configured(), 8, profile)
    profile.sample.gpus = 0
    assert sample_role(configured(), 8, profile) is profile.sample, "a cluster without GPUs serves on CPUs"
    profile.sample.gpus = 2
    assert sample_role(configured("train.device=cpu"), 2, profile).gpus == 2, (
        "GPUs that a cluster only pretends to have"
    )
    assert sample_role(configured("train.device=cpu"), 0, profile).gpus == 0
