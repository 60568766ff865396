"""What may differ when a run goes on, and what may not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stateward.config import load_config
from stateward.store import changed_inputs
from stateward.training.inputs import training_inputs
from stateward.training.plan import plan_training

FULL = Path(__file__).parents[2] / "configs" / "q38_full.yaml"


def inputs_of(*overrides: str) -> dict[str, Any]:
    return training_inputs(plan_training(load_config(FULL, overrides), "/run", Path("/m")), "base", [])


@pytest.mark.parametrize(
    "override",
    [
        "train.rollout_memory_utilization=0.6",
        "train.rollout_max_num_batched_tokens=8192",
        "train.rollout_tensor_parallel=8",
        "train.micro_batch_per_gpu=2",
        "train.ulysses=8",
        "train.gradient_checkpointing=false",
        "train.fused_kernels=false",
        "train.param_offload=false",
        "train.max_refill_rounds=9",
        "train.verl={actor_rollout_ref.rollout.max_num_seqs: 8}",
        "train.verl={+actor_rollout_ref.actor.fsdp_config.offload_policy: true}",
        "train.steps=60",
    ],
)
def test_what_helps_after_memory_ran_out_may_differ(override: str) -> None:
    assert changed_inputs(inputs_of(), inputs_of(override)) == []


@pytest.mark.parametrize(
    ("override", "text"),
    [
        ("train.max_refill_rounds=0", "train.max_refill_rounds: above 0 → 0"),
        ("train.nodes=6", "train.nodes: 3 → 6"),
        ("train.seed=1", "train.seed: 42 → 1"),
        ("sampling.temperature=0.7", "settings.sampling.temperature: 1.0 → 0.7"),
        ("train.verl={actor_rollout_ref.actor.entropy_coeff: 0.1}", "entropy_coeff: (absent) → 0.1"),
        ("train.remove_padding=false", "train.remove_padding: True → False"),
    ],
)
def test_what_changes_what_is_learned_may_not(override: str, text: str) -> None:
    single = "train.ulysses=1"  # may differ, and is needed without packing
    assert text in "; ".join(changed_inputs(inputs_of(), inputs_of(override, single)))
