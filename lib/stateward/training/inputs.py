"""What a run's result depends on, and what may differ when it goes on, for instance after memory ran out.

The settings below change how a run is carried out but not what it learns: sums are taken in another order at most.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stateward.config import config_to_dict
from stateward.episode import settings_of, tasks_fingerprint
from stateward.tasks.task import Task
from stateward.training.plan import TrainPlan

_OPERATIONAL = {
    "steps",
    "save_every",
    "micro_batch_per_gpu",  # the loss is normalised over the tokens of the whole batch
    "ulysses",
    "rollout_tensor_parallel",
    "rollout_memory_utilization",
    "rollout_max_num_batched_tokens",
    "agent_workers",
    "param_offload",
    "optimizer_offload",
    "gradient_checkpointing",
    "fused_kernels",
    "max_attempts",
    "max_void_share",
    "watchdog_minutes",
    "max_logprob_difference",
    "device_memory_gb",
    "host_memory_gb",
    "trackers",
}

_ACTOR = "actor_rollout_ref.actor"
_MODEL = "actor_rollout_ref.model"
_ROLLOUT = "actor_rollout_ref.rollout"
#: The same among the keys of `train.verl` (verl 0.9.1). Every other key of Verl's may change what is learned.
_OPERATIONAL_VERL = {
    f"{_ACTOR}.entropy_checkpointing",
    f"{_ACTOR}.entropy_from_logits_with_chunking",
    f"{_ACTOR}.fsdp_config.forward_prefetch",
    f"{_ACTOR}.fsdp_config.offload_policy",
    f"{_ACTOR}.fsdp_config.reshard_after_forward",
    f"{_MODEL}.enable_activation_offload",
    f"{_ROLLOUT}.checkpoint_engine.update_weights_bucket_megabytes",
    f"{_ROLLOUT}.enable_prefix_caching",
    f"{_ROLLOUT}.enforce_eager",
    f"{_ROLLOUT}.gpu_memory_utilization",
    f"{_ROLLOUT}.max_num_batched_tokens",
    f"{_ROLLOUT}.max_num_seqs",
    "actor_rollout_ref.nccl_timeout",
    "transfer_queue.backend.SimpleStorage.num_data_storage_units",
}


def training_inputs(plan: TrainPlan, policy_id: str, pool: Sequence[Task]) -> dict[str, Any]:
    """What the result depends on, for the stage's marker."""
    train = {name: value for name, value in config_to_dict(plan.config.train).items() if name not in _OPERATIONAL}
    train["verl"] = {key: value for key, value in train["verl"].items() if key.lstrip("+") not in _OPERATIONAL_VERL}
    # How many rounds are allowed decides when a run gives up; none at all trains on groups without signal too.
    train["max_refill_rounds"] = "0" if train["max_refill_rounds"] == 0 else "above 0"
    return {
        "policy": policy_id,
        "settings": settings_of(plan.config, max_model_len=plan.config.policy.max_model_len),
        "tasks": tasks_fingerprint(pool),
        "train": train,
    }
