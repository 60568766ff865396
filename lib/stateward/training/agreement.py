"""Before anything is trained: do the rollout engines and the trainer give the same sequence the same log-probabilities?

A sequence is sampled from every engine and scored by the trainer through the path that every step takes. Wrong
weights in an engine, a wrong attention mask or a broken kernel show here as a difference of whole nats, before a step's
worth of episodes was paid for. What is left between equal weights is rounding: bfloat16 keeps 8 bits, so a logit of 20
moves by 0.08.

Every engine is asked twice. The second time it takes the prompt from its prefix cache, as in every later turn of an
episode; a hybrid model then restores the states of its linear attention, which is code of its own. `require_agreement`
holds every step to the same limit.
"""

from __future__ import annotations

import math
from typing import Any

import ray
import torch
import transfer_queue
from transfer_queue import KVBatchMeta
from verl.utils import tensordict_utils
from verl.workers.utils.padding import response_from_nested

from stateward.errors import SystemFault

_PARTITION = "agreement"
_TOKENS = 48
#: Tokens of the prompt. A hybrid's block of the prefix cache has some 800 (vLLM 0.27.1, mamba_cache_mode=align).
_PROMPT = 3072


def check_agreement(trainer: Any, limit: float) -> dict[str, float]:
    """Compare every engine with the trainer, without its prefix cache and with it.

    Leaves the engines as it found them: awake and with the trainer's weights.

    Returns:
        ``mean_absolute``: difference in nats of the answer that differs most; ``max_absolute``: of any token;
        ``cached_tokens``: the fewest that an engine had of the prompt when it was asked again.

    Raises:
        SystemFault: the mean difference of an answer is above `limit`, or an engine did not use its prefix cache.
    """
    rollout = trainer.config.actor_rollout_ref.rollout
    prompt = _prompt(trainer.tokenizer, min(_PROMPT, rollout.max_model_len - _TOKENS))
    servers = trainer.llm_server_manager.server_handles
    outputs = [output for call in ("first", "again") for output in _ask(servers, prompt, call)]
    again = outputs[len(servers) :]
    cached = [output.extra_fields.get("num_cached_tokens") or 0 for output in again]
    # A prompt that fills a short context may be no whole block: then no turn is cached, and there is nothing to check.
    if rollout.enable_prefix_caching and len(prompt) == _PROMPT and not all(cached):
        raise SystemFault(
            "training",
            f"engine {cached.index(0)} took none of {len(prompt)} prompt tokens from its prefix cache when it was asked"
            " again: what later turns use was not checked; to do without the cache, set "
            "actor_rollout_ref.rollout.enable_prefix_caching: false in train.verl",
        )
    trainer.checkpoint_manager.sleep_replicas()
    scores = _trainer_logprobs(trainer, prompt, [list(output.token_ids) for output in outputs])
    trainer.checkpoint_manager.update_weights(trainer.global_steps)
    differences = [
        (score - torch.tensor(output.log_probs)).abs() for score, output in zip(scores, outputs, strict=True)
    ]
    means = [difference.mean().item() for difference in differences]
    worst = max(range(len(means)), key=lambda i: (math.isnan(means[i]), means[i]))
    how = " with a cached prompt" if worst >= len(servers) else ""
    require_agreement(f"engine {worst % len(servers)}{how}", means[worst], limit)
    return {
        "mean_absolute": means[worst],
        "max_absolute": max(d.max().item() for d in differences),
        "cached_tokens": min(cached),
    }


def require_agreement(who: str, mean_absolute: float, limit: float) -> None:
    """Raises SystemFault if the mean difference of `who` from the trainer, in nats per token, is above `limit`."""
    if not mean_absolute <= limit:  # NaN fails as well
        raise SystemFault(
            "training",
            f"{who} and the trainer differ by {mean_absolute:.3f} nats per token, more than "
            f"train.max_logprob_difference={limit:g}: they do not compute the same policy",
        )


def _ask(servers: list[Any], prompt: list[int], call: str) -> list[Any]:
    params = {"temperature": 1.0, "top_k": -1, "top_p": 1.0, "logprobs": True, "max_tokens": _TOKENS, "seed": 1}
    outputs: list[Any] = ray.get(
        [
            server.generate.remote(request_id=f"agreement-{call}-{i}", prompt_ids=prompt, sampling_params=dict(params))
            for i, server in enumerate(servers)
        ]
    )
    return outputs


def _prompt(tokenizer: Any, length: int) -> list[int]:
    """A fixed prompt that every tokenizer has: the ids of some of its ordinary tokens, in a fixed order."""
    special = set(tokenizer.all_special_ids)
    ordinary = [i for i in range(len(tokenizer)) if i not in special]
    return [ordinary[(i * 7919) % len(ordinary)] for i in range(length)]


def _trainer_logprobs(trainer: Any, prompt: list[int], responses: list[list[int]]) -> list[torch.Tensor]:
    """The trainer's log-probs of each response, [number of tokens] each."""
    ranks = max(trainer.actor_rollout_wg._query_dispatch_info("actor")) + 1
    # Every data-parallel rank takes the same number of whole micro-batches.
    share = ranks * trainer.config.actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu
    number = -(-len(responses) // share) * share
    rows = [_row(prompt, responses[i % len(responses)]) for i in range(number)]
    keys = [f"agreement_{i}_0" for i in range(number)]
    tags = [{"status": "success", "seq_len": len(row["input_ids"])} for row in rows]
    transfer_queue.kv_batch_put(
        keys=keys, partition_id=_PARTITION, fields=tensordict_utils.list_of_dict_to_tensordict(rows), tags=tags
    )
    batch = KVBatchMeta(partition_id=_PARTITION, keys=keys, tags=tags)
    batch.extra_info.update({"calculate_entropy": False, "compute_loss": False, "temperature": 1.0})
    trainer.actor_rollout_wg.compute_log_prob(batch)
    data = transfer_queue.kv_batch_get(keys=keys, partition_id=_PARTITION, select_fields=["log_probs", "response_mask"])
    scores = response_from_nested(data["log_probs"], data["response_mask"])
    transfer_queue.kv_clear(keys=keys, partition_id=_PARTITION)
    return [row.float() for row in scores.unbind()][: len(responses)]


def _row(prompt: list[int], response: list[int]) -> dict[str, Any]:
    """One episode as Verl's worker stores it."""
    ids = torch.tensor([*prompt, *response], dtype=torch.int64)
    mask = torch.ones(len(response), dtype=torch.int64)
    return {
        "uid": "agreement",
        "prompts": torch.tensor(prompt, dtype=torch.int64),
        "responses": torch.tensor(response, dtype=torch.int64),
        "response_mask": mask,
        "loss_mask": mask,
        "input_ids": ids,
        "position_ids": torch.arange(len(ids)),
        "multi_modal_inputs": {},
    }
