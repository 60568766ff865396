"""Between which values each number of the configuration must lie, so that a dry run refuses what no stage could do."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from stateward.config.schema import (
    RANK_FLAGS,
    Config,
    CurateConfig,
    EndpointConfig,
    EngineConfig,
    EpisodeConfig,
    EvaluateConfig,
    GradeConfig,
    PolicyConfig,
    PolicyEndpointConfig,
    ProbeConfig,
    ReferenceConfig,
    SamplingConfig,
    SandboxConfig,
    ServeConfig,
    SimulatorConfig,
    TrainConfig,
)
from stateward.errors import UserError


@dataclass(frozen=True, kw_only=True)
class Bound:
    """An interval. `least` and `most` belong to it, `above` and `below` do not; NaN and infinities are in none.

    `because`: the reason, where the number's name does not say it.
    """

    least: float = -math.inf
    above: float = -math.inf
    most: float = math.inf
    below: float = math.inf
    because: str = ""

    def __contains__(self, value: float) -> bool:
        return self.least <= value <= self.most and self.above < value < self.below

    def __str__(self) -> str:
        ends = [("at least", self.least), ("above", self.above), ("at most", self.most), ("below", self.below)]
        text = " and ".join(f"{word} {end:.15g}" for word, end in ends if math.isfinite(end))
        return f"{text}: {self.because}" if self.because else text


COUNT = Bound(least=1)
NOT_NEGATIVE = Bound(least=0)
POSITIVE = Bound(above=0)
#: A part of something of which there must be some.
PART = Bound(above=0, most=1)
#: NumPy's, which vLLM seeds too.
SEED = Bound(least=0, below=2**32)

#: Section → field → its bound. Fields of a section that it inherits stand with the section that declares them.
Bounds = Mapping[type, Mapping[str, Bound]]

BOUNDS: Bounds = {
    PolicyConfig: {"max_model_len": COUNT, "max_prompt_tokens": COUNT},
    SamplingConfig: {
        "temperature": NOT_NEGATIVE,
        "top_k": Bound(least=-1),
        "top_p": PART,
        "max_tokens_per_turn": COUNT,
        "seed": SEED,
    },
    EngineConfig: {
        "tensor_parallel": COUNT,
        "gpu_memory_utilization": PART,
        "max_num_seqs": COUNT,
        "max_num_batched_tokens": COUNT,
        "startup_seconds": POSITIVE,
    },
    ServeConfig: {"replicas": COUNT},
    SimulatorConfig: {"max_model_len": COUNT},
    EndpointConfig: {
        "temperature": NOT_NEGATIVE,
        "max_tokens": COUNT,
        "timeout_seconds": POSITIVE,
        "max_retries": NOT_NEGATIVE,
    },
    SandboxConfig: {
        "max_worlds": COUNT,
        "tool_deadline_seconds": POSITIVE,
        "open_deadline_seconds": POSITIVE,
        "idle_seconds": POSITIVE,
        "max_output_bytes": COUNT,
        "world_memory_mb": COUNT,
        "world_cpu_seconds": COUNT,
    },
    GradeConfig: {"deadline_seconds": POSITIVE, "memory_mb": COUNT},
    EpisodeConfig: {
        "concurrency": COUNT,
        "max_agent_turns": COUNT,
        "max_seconds": POSITIVE,
        "turn_seconds": POSITIVE,
    },
    ProbeConfig: {
        "trials": COUNT,
        "bounded_error": Bound(least=0, below=0.5),
        "max_attempts": COUNT,
        "max_void_share": Bound(least=0, most=1),
    },
    ReferenceConfig: {"passes": COUNT, "trials": COUNT},
    CurateConfig: {
        "min_valid_trials": COUNT,
        "test_share": Bound(least=0, below=1),
        "near_duplicate_threshold": PART,
        "seed": SEED,
    },
    TrainConfig: {
        **dict.fromkeys(("steps", "groups_per_step", "save_every", "micro_batch_per_gpu", "agent_workers"), COUNT),
        **dict.fromkeys(("nodes", "gpus_per_node", "ulysses", "rollout_tensor_parallel"), COUNT),
        "group_size": Bound(least=2, because="an advantage compares the episodes of a group"),
        "learning_rate": Bound(above=0, below=1),
        "weight_decay": NOT_NEGATIVE,
        "clip_ratio_low": PART,
        "clip_ratio_high": POSITIVE,
        "lora_rank": NOT_NEGATIVE,
        "rollout_memory_utilization": PART,
        "rollout_max_num_batched_tokens": COUNT,
        "max_refill_rounds": NOT_NEGATIVE,
        "max_attempts": COUNT,
        "max_void_share": Bound(least=0, most=1),
        "watchdog_minutes": POSITIVE,
        "max_logprob_difference": POSITIVE,
        "device_memory_gb": NOT_NEGATIVE,
        "host_memory_gb": NOT_NEGATIVE,
        "seed": SEED,
    },
    PolicyEndpointConfig: {"timeout_seconds": POSITIVE, "max_retries": NOT_NEGATIVE},
    EvaluateConfig: {
        "trials": COUNT,
        "max_model_len": COUNT,
        "max_attempts": COUNT,
        "max_void_share": Bound(least=0, most=1),
    },
}


def require_bounds(section: Any, bounds: Bounds, *, where: str = "") -> None:
    """Refuse the first number of `section`, or of a section inside it, that lies out of its bound.

    Args:
        where: what the message has before the number's dotted name.

    Raises:
        UserError: names the number and its bound.
    """
    for field in fields(section):
        value = getattr(section, field.name)
        inside = {f"{field.name}.{key}": inner for key, inner in value.items()} if isinstance(value, dict) else {}
        for name, inner in {field.name: value, **inside}.items():
            if is_dataclass(inner):
                require_bounds(inner, bounds, where=f"{where}{name}.")
        if isinstance(value, int | float) and not isinstance(value, bool):
            bound = bound_of(type(section), field.name, bounds)
            if value not in bound:
                why = f"it must be {bound}" if math.isfinite(value) else "it must be a finite number"
                raise UserError(f"{where}{field.name}={value}", why)


def bound_of(section: type, name: str, bounds: Bounds) -> Bound:
    """The bound of a field, from the section that declares it. Raises KeyError if none has it."""
    for kind in section.__mro__:
        if name in bounds.get(kind, {}):
            return bounds[kind][name]
    raise KeyError(f"{section.__name__}.{name} has no bound")


def require_ranks(config: Config) -> None:
    """Raises UserError if `extra` of an engine asks for a number of parallel ranks that is none."""
    for name, engine in (("serve", config.serve), ("simulator", config.simulator)):
        for flag in RANK_FLAGS:
            value = str(engine.extra.get(flag, 1))
            if not value.isdecimal() or int(value) not in COUNT:
                raise UserError(f"{name}.extra.{flag}={value}", f"it must be a whole number, {COUNT}")
