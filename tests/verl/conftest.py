"""Whole training runs that cost little: a random tiny policy and scripted episodes, in the real Ray, Verl and FSDP.

The rollout engine is vLLM, or, where it is not what a test is about, a scripted one (`scripted_engine`), which starts
in two seconds instead of forty.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil
import pytest

from stateward.config import Config
from stateward.config.schema import EpisodeConfig, PolicyConfig, SamplingConfig, TasksConfig, TrainConfig
from stateward.tasks.task import Check, Task
from stateward.training import checks, launch, run, stacks, verify
from stateward.training.figures import read_lines
from stateward.training.paths import TrainPaths
from stateward.training.plan import TrainPlan

HERE = Path(__file__).parent
POOL = [
    Task(uid=f"f.py:test_{i}", domain="d", system="s", query="q", check=Check(file="f.py", function="f", source=""))
    for i in range(5)
]


def _module(name: str) -> ModuleType:
    """A module beside this file, under its own name."""
    spec = importlib.util.spec_from_file_location(name, HERE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Qwen3 of two layers with a word-level tokenizer."""
    written: Path = _module("tiny").write_model(tmp_path_factory.mktemp("model") / "base")
    return written


@dataclass
class SmallRuns:
    """Starts runs over `model`, and tells their processes apart. `engine`: ``scripted`` or ``vllm``."""

    model: Path
    engine: str = "scripted"

    def config(self, run_dir: Path, **train: Any) -> Config:
        train["max_logprob_difference"] = 100.0  # those of the scripted episodes are no one's
        return Config(
            name="small",
            run_dir=str(run_dir),
            tasks=TasksConfig(dataset="-", train="-", benchmark="-"),
            policy=PolicyConfig(model=str(self.model), max_model_len=256, max_prompt_tokens=64),
            sampling=SamplingConfig(top_k=-1, top_p=1.0, max_tokens_per_turn=32),
            episode=EpisodeConfig(max_seconds=60.0),
            train=TrainConfig(**(_SMALL | train)),
        )

    def train(self, run_dir: Path, **train: Any) -> run.TrainResult:
        config = self.config(run_dir, **train)
        return run.train(config, run_dir, model=self.model, policy_id="base", pool=POOL)

    @staticmethod
    def processes(
        run_dir: Path, match: Callable[[psutil.Process], bool] = lambda process: True
    ) -> list[psutil.Process]:
        """What lives of the run in `run_dir`: every process of it has the folder of its logs in its environment."""
        mark = str(TrainPaths.of(run_dir).logs)
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get(stacks.LOGS) == mark and (match is None or match(process)):
                    found.append(process)
            except psutil.Error:  # it ended, or it is someone else's
                continue
        return found


_ENGINE = "actor_rollout_ref.rollout.name"
_SMALL: dict[str, Any] = {
    "device": "cpu",
    "steps": 5,
    "group_size": 4,
    "groups_per_step": 2,
    "learning_rate": 3e-3,
    "save_every": 1,
    "nodes": 1,
    "gpus_per_node": 1,
    "ulysses": 1,
    "rollout_tensor_parallel": 1,
    "rollout_max_num_batched_tokens": 1024,
    "agent_workers": 1,
    "gradient_checkpointing": False,
    "remove_padding": False,
    "fused_kernels": False,
    "micro_batch_per_gpu": 8,
}


@pytest.fixture
def small_runs(tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> SmallRuns:
    """The scripted episode loop in the place of ours; there are no worlds to measure prompts in."""
    runs = SmallRuns(tiny_model)
    plan_training, write_plan, metadata_environment = run.plan_training, run.write_plan, launch.metadata_environment

    def plan_small_training(config: Config, run_dir: Path, model: Path) -> TrainPlan:
        """The engine is chosen here and not by `train.verl`, so that a run can go on with another."""
        plan = plan_training(config, run_dir, model)
        named = [replace(o, value=runs.engine) if o.key == _ENGINE else o for o in plan.overrides]
        return replace(plan, overrides=named)

    def write_scripted_plan(plan: TrainPlan, policy_id: str, pool: list[Task], *, start: int) -> None:
        write_plan(plan, policy_id, pool, start=start)
        loops = json.loads(plan.paths.agent_loops.read_text())
        loops[0]["_target_"] = "scripted_loop.ScriptedLoop"
        plan.paths.agent_loops.write_text(json.dumps(loops))

    def environment_with_tests(folder: Path) -> dict[str, str]:
        """Every process finds the modules beside this file, and Verl the scripted engine among them."""
        env = metadata_environment(folder)
        env["PYTHONPATH"] = ":".join(part for part in (env.get("PYTHONPATH", ""), str(HERE)) if part)
        return env | {"VERL_USE_EXTERNAL_MODULES": "stateward.training.verl_plugin,scripted_rollout"}

    monkeypatch.setattr(run, "plan_training", plan_small_training)
    monkeypatch.setattr(run, "write_plan", write_scripted_plan)
    monkeypatch.setattr(checks, "check_prompts", lambda config, model, pool: 6)
    monkeypatch.setattr(launch, "metadata_environment", environment_with_tests)
    return runs


@dataclass(frozen=True)
class Trained:
    """What a run left behind."""

    lines: list[dict[str, Any]]
    weights: dict[str, list[float]]

    @classmethod
    def of(cls, run_dir: Path) -> Trained:
        import torch

        paths = TrainPaths.of(run_dir)
        latest = verify.latest_verified(paths.checkpoints)
        assert latest is not None
        shard = torch.load(verify.shard_files(latest, 1)[0], weights_only=False)
        flat = {name: torch.as_tensor(getattr(t, "_local_tensor", t)).flatten().tolist() for name, t in shard.items()}
        return cls(read_lines(paths.metrics), flat)

    def difference(self, other: Trained) -> dict[str, float]:
        """The largest absolute difference of each figure over all steps, and of all weights of the last checkpoint."""
        found = {}
        for figure in ("loss", "grad_norm", "entropy", "reward_mean", "sampled_tokens"):
            pairs = zip(self.lines, other.lines, strict=True)
            found[figure] = max(abs(a[figure] - b[figure]) for a, b in pairs)
        assert self.weights.keys() == other.weights.keys()
        found["weights"] = max(
            abs(a - b) for name in self.weights for a, b in zip(self.weights[name], other.weights[name], strict=True)
        )
        return found


@pytest.fixture
def trained() -> Callable[[Path], Trained]:
    return Trained.of


@pytest.fixture
def in_a_worker() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs code in a process with the environment of a run on processor cores."""

    def run_code(code: str, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        env = {
            **os.environ,
            "VERL_PLATFORM": "cpu",
            "VERL_ENGINE_DEVICE": "cuda",
            "VERL_USE_EXTERNAL_MODULES": "stateward.training.verl_plugin",
            **more,
        }
        return subprocess.run([sys.executable, "-c", code, *arguments], env=env, capture_output=True, text=True)

    return run_code
