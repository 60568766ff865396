"""A group's episodes in the transfer queue, where Verl's trainer finds them (verl 0.9.1, ``AgentLoopWorkerTQ``).

Verl puts every episode there by itself as it ends, which its controller and its storage answer one by one. A group is
one message here, and one that is not trained on is none.
"""

from __future__ import annotations

from typing import Any

import torch
import transfer_queue
from verl.experimental.agent_loop.agent_loop import AgentLoopOutput
from verl.utils.tensordict_utils import list_of_dict_to_tensordict

PARTITION = "train"


def episode_keys(group: str, size: int) -> list[str]:
    """Names of a group's episodes, in their order: Verl takes what stands before the first underscore for the group."""
    return [f"{group}_{number}_0" for number in range(size)]


async def put_group(group: str, step: int, outputs: list[AgentLoopOutput]) -> None:
    """Store all episodes of `group`, in their order."""
    await transfer_queue.async_kv_batch_put(
        keys=episode_keys(group, len(outputs)),
        fields=list_of_dict_to_tensordict([_fields(group, i, step, output) for i, output in enumerate(outputs)]),
        tags=[_tag(step, output) for output in outputs],
        partition_id=PARTITION,
    )


def _fields(group: str, number: int, step: int, output: AgentLoopOutput) -> dict[str, Any]:
    """One row. L = prompt + response tokens; there is only text, so its positions have one dimension."""
    fields: dict[str, Any] = output.as_dict()
    input_ids = torch.cat([fields["prompts"], fields["responses"]])  # [L]
    return {
        **fields,
        "uid": group,
        "session_id": number,
        "global_steps": step,
        "loss_mask": fields["response_mask"],
        "input_ids": input_ids,
        "position_ids": torch.arange(len(input_ids)),
        "multi_modal_inputs": {},
    }


def _tag(step: int, output: AgentLoopOutput) -> dict[str, Any]:
    prompt, response = len(output.prompt_ids), len(output.response_ids)
    return {
        "status": "success",
        "prompt_len": prompt,
        "response_len": response,
        "seq_len": prompt + response,
        "global_steps": step,
        "min_global_steps": output.extra_fields["min_global_steps"],
        "max_global_steps": output.extra_fields["max_global_steps"],
    }
