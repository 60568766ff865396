"""How a step is spread over devices, by arithmetic alone: no torch, no Verl."""

from __future__ import annotations

from dataclasses import dataclass

from stateward.config import Config
from stateward.errors import UserError


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The resolved shape of one training step.

    Attributes:
        world_size: devices, nodes × devices a node.
        data_parallel: groups of devices that hold different episodes; `world_size` over Ulysses' sequence parallel.
        replicas: rollout engines, `world_size` over the rollout's tensor parallel.
        episodes: of one step, groups × group size.
        episodes_per_rank: of one data-parallel rank in one step.
        context: bound of an episode's tokens, prompt and response.
        prompt_tokens: bound of the prompt. response_tokens: what the longest prompt leaves; a shorter one leaves more.
    """

    nodes: int
    devices_per_node: int
    world_size: int
    sequence_parallel: int
    data_parallel: int
    tensor_parallel: int
    replicas: int
    groups: int
    group_size: int
    episodes: int
    episodes_per_rank: int
    micro_batch: int
    context: int
    prompt_tokens: int
    response_tokens: int

    def describe(self) -> list[str]:
        """One line a fact, for ``--dry-run``."""
        return [
            f"devices: {self.nodes} nodes x {self.devices_per_node} = {self.world_size}",
            f"training: data parallel {self.data_parallel} x sequence parallel {self.sequence_parallel}",
            f"rollout: {self.replicas} engines x tensor parallel {self.tensor_parallel}",
            f"step: {self.groups} groups x {self.group_size} = {self.episodes} episodes, "
            f"{self.episodes_per_rank} a data-parallel rank in micro-batches of {self.micro_batch}",
            f"tokens: an episode at most {self.context}, its prompt at most {self.prompt_tokens}; "
            f"the longest prompt leaves {self.response_tokens} for the response",
        ]


def resolve_layout(config: Config) -> Layout:
    """The layout that `config` asks for.

    Raises:
        UserError: a number does not divide another; the text names both and the nearest ones that would do.
    """
    train, policy = config.train, config.policy
    world = train.nodes * train.gpus_per_node
    sizes = f"train.nodes x train.gpus_per_node = {world}"
    _divides("train.ulysses", train.ulysses, world, sizes)
    _divides("train.rollout_tensor_parallel", train.rollout_tensor_parallel, world, sizes)
    if train.rollout_tensor_parallel > train.gpus_per_node and train.rollout_tensor_parallel % train.gpus_per_node:
        raise UserError(
            f"train.rollout_tensor_parallel={train.rollout_tensor_parallel} does not fit the nodes",
            f"an engine over several nodes takes whole ones, of {train.gpus_per_node} devices each",
            f"use a divisor or a multiple of {train.gpus_per_node}",
        )
    if train.ulysses > 1 and not train.remove_padding:
        raise UserError(
            f"train.ulysses={train.ulysses} with train.remove_padding=false",
            "sequence parallelism divides packed episodes alone (verl 0.9.1, FSDPEngine)",
            "set train.remove_padding=true, or train.ulysses=1",
        )
    data_parallel = world // train.ulysses
    episodes = train.groups_per_step * train.group_size
    _divides(
        "number of devices",
        world,
        episodes,
        f"{train.groups_per_step} x {train.group_size} = {episodes} episodes",
        why="a step's episodes must be a multiple of the devices, whatever train.ulysses is (verl 0.9.1, "
        "validate_config)",
    )
    per_rank = episodes // data_parallel
    _divides("train.micro_batch_per_gpu", train.micro_batch_per_gpu, per_rank, f"{per_rank} episodes a rank")
    response = policy.max_model_len - policy.max_prompt_tokens
    if response < 1:
        raise UserError(
            f"policy.max_prompt_tokens={policy.max_prompt_tokens} leaves no room",
            f"policy.max_model_len is {policy.max_model_len} and holds prompt and response",
            "lower the first or raise the second",
        )
    return Layout(
        nodes=train.nodes,
        devices_per_node=train.gpus_per_node,
        world_size=world,
        sequence_parallel=train.ulysses,
        data_parallel=data_parallel,
        tensor_parallel=train.rollout_tensor_parallel,
        replicas=world // train.rollout_tensor_parallel,
        groups=train.groups_per_step,
        group_size=train.group_size,
        episodes=episodes,
        episodes_per_rank=per_rank,
        micro_batch=train.micro_batch_per_gpu,
        context=policy.max_model_len,
        prompt_tokens=policy.max_prompt_tokens,
        response_tokens=response,
    )


def _divides(name: str, divisor: int, total: int, what: str, why: str = "") -> None:
    if total % divisor == 0:
        return
    near = [n for n in range(1, total + 1) if total % n == 0]
    raise UserError(
        f"{name}: {divisor} does not divide {what}",
        why or "the devices are split into equal parts",
        f"divisors of {total}: {', '.join(map(str, near))}",
    )
