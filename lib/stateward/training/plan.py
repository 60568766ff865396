"""A training run resolved from its configuration: layout, overrides, environment. No torch, no Ray, no tasks."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from pathlib import Path

from stateward.cluster.services.vllm_limits import limits_environment
from stateward.config import Config
from stateward.training.corrections import FREEZE
from stateward.training.layout import Layout, resolve_layout
from stateward.training.memory import budgets, model_size
from stateward.training.overrides import Override, verl_overrides
from stateward.training.paths import TrainPaths
from stateward.training.stacks import LOGS
from stateward.training.watchdog import check_patience


@dataclass(frozen=True, kw_only=True)
class TrainPlan:
    """A run, resolved: what a dry run prints and `run.train` carries out."""

    config: Config
    layout: Layout
    overrides: list[Override]
    paths: TrainPaths
    model: Path

    def command(self) -> list[str]:
        """The driver's overrides as the command line of Verl's own launcher."""
        return [*_LAUNCHER, *(override.render() for override in self.overrides)]

    def lines(self) -> list[str]:
        """What `--dry-run` prints: layout and memory, then environment and Verl's command as bash that can be run."""
        environment = worker_environment(self.config, self.paths)
        return [
            *(f"# {line}" for line in [*self.layout.describe(), *self._memory()]),
            "",
            "# environment of every process",
            *(f"export {name}={shlex.quote(value)}" for name, value in environment.items()),
            "",
            "overrides=(",
            *(f"  {shlex.quote(line.render())}  # {line.reason}" for line in self.overrides),
            ")",
            f'{shlex.join(_LAUNCHER)} "${{overrides[@]}}"',
        ]

    def _memory(self) -> list[str]:
        """The budgets, whether they fit or not; the headers of the weights are enough for it."""
        if not any(self.model.glob("*.safetensors")):
            return [f"memory: not counted, there are no weights in {self.model}"]
        found = budgets(self.config, self.layout, model_size(self.model))
        return [line for budget in found for line in budget.lines()]


_LAUNCHER = ("python", "-m", "verl.trainer.main_ppo")


def plan_training(config: Config, run_dir: Path | str, model: Path) -> TrainPlan:
    """Resolve everything that can be resolved without torch, Ray or the network.

    Raises:
        UserError: the configuration contradicts itself.
    """
    layout = resolve_layout(config)
    check_patience(config)
    paths = TrainPaths.of(run_dir)
    return TrainPlan(
        config=config,
        layout=layout,
        overrides=verl_overrides(config, layout, paths, model),
        paths=paths,
        model=model,
    )


def worker_environment(config: Config, paths: TrainPaths) -> dict[str, str]:
    """What every process of the run gets in its environment, besides what `run` must write files for."""
    defaults = _VERLS | limits_environment(config.serve.startup_seconds)
    env = {name: os.environ.get(name, value) for name, value in defaults.items()} | {
        "VERL_USE_EXTERNAL_MODULES": "stateward.training.verl_plugin",
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "VLLM_LOGGING_LEVEL": "WARNING",
        "VLLM_NO_USAGE_STATS": "1",
        "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
        LOGS: str(paths.logs),
        "TENSORBOARD_DIR": str(paths.stage / "tensorboard"),
        "WANDB_DIR": str(paths.stage),
    }
    if config.train.freeze_embeddings:
        env[FREEZE] = "1"
    if config.train.device == "cpu":
        env |= CPU_ENVIRONMENT
    return env


#: What Verl's launcher sets where the shell does not (verl 0.9.1, ``PPO_RAY_RUNTIME_ENV``). Its reason for the last is
#: that vLLM's cache of compiled graphs gets corrupted.
_VERLS = {"NCCL_DEBUG": "WARN", "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "true", "VLLM_DISABLE_COMPILE_CACHE": "1"}

#: See `cpu_platform`, which is loaded by it.
CPU_ENVIRONMENT = {
    "VERL_PLATFORM": "cpu",
    "VERL_ENGINE_DEVICE": "cuda",  # the FSDP engine is registered for cuda and npu only
    "VLLM_TARGET_DEVICE": "cpu",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # the cores are shared with the trainer and the worlds
    "OMP_NUM_THREADS": "1",
    "GLOO_SOCKET_IFNAME": "lo",
}
