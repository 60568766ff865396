"""How much memory a run needs, by formula and with every term shown: on a device, on a node, on the disk.

P is the number of parameters, T the trained ones (P, or the adapter's), W the number of devices. Weights are kept in
fp32 and sharded over all devices (FSDP2, full sharding); the forward pass gathers one layer at a time in bf16; Adam
keeps two fp32 states (Kingma and Ba 2015). The formula for activations is the one of full recomputation: the input of
every layer is kept, one layer's insides exist at a time (Korthikanti et al. 2022, section 4).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from stateward.config import Config
from stateward.errors import UserError
from stateward.training.layout import Layout
from stateward.training.paths import KEEP

GB = 1e9
MB = 1e6
#: What a sleeping vLLM keeps on a device: context, communicators and CUDA graphs are not in the pool that it empties
#: (vllm 0.27.1, CuMemAllocator). An allowance; its log says "Sleep mode freed ..., ... is still in use".
_ASLEEP = 4 * GB
#: Tokens of a chunk of the fused loss (verl 0.9.1, FusedLinearForPPO), and tensors of a chunk's size, in fp32, that its
#: backward holds at a time (_fused_linear_for_ppo_bwd: logits, probabilities, one-hot targets, two gradients).
_CHUNK, _OF_A_CHUNK = 512, 5
#: CUDA context, communicators and fragments of one process (measured on H100 with NCCL 2.29: 2 to 3 GB).
_CONTEXT = 3 * GB
#: One episode's world beside its snapshot: pages that it wrote. An allowance; `sandbox` reports what is used.
_WORLD = 0.1 * GB
#: Checkpoints on the disk at one time: those that are kept, and the one that is being written.
_CHECKPOINTS = KEEP + 1


@dataclass(frozen=True, kw_only=True)
class ModelSize:
    """What the formulas need of a checkpoint.

    Attributes:
        adapter: parameters of an adapter of rank 1 on all linear layers.
        attention_layers: those that keep keys and values of a whole sequence. A hybrid model has fewer than layers.
        pairs: of keys and values, in one of these layers. head: size of one key.
    """

    parameters: int
    adapter: int
    layers: int
    hidden: int
    intermediate: int
    vocabulary: int
    attention_layers: int
    pairs: int
    head: int


@dataclass(frozen=True, kw_only=True)
class Term:
    name: str
    bytes: float
    formula: str


@dataclass(frozen=True, kw_only=True)
class Budget:
    """Terms that add up, and what there is. `available` 0: not known."""

    name: str
    terms: list[Term]
    available: float

    @property
    def total(self) -> float:
        return sum(term.bytes for term in self.terms)

    def lines(self) -> list[str]:
        there = f" of {self.available / GB:.0f} GB" if self.available else ""
        head = f"{self.name}: {amount(self.total)}{there}"
        return [head, *(f"  {amount(term.bytes):>11}  {term.name}  ({term.formula})" for term in self.terms)]


def amount(size: float) -> str:
    """`size` bytes to read: in GB, or in MB where that would be 0.0."""
    return f"{size / GB:.1f} GB" if size == 0 or size >= GB / 10 else f"{size / MB:.1f} MB"


def model_size(model: Path) -> ModelSize:
    """Read the headers of the checkpoint's safetensors files; no weight is loaded.

    Raises:
        UserError: no weights, or a config.json without the usual sizes.
    """
    shapes: dict[str, list[int]] = {}
    for path in sorted(model.glob("*.safetensors")):
        shapes |= {name: entry["shape"] for name, entry in _header(path).items() if name != "__metadata__"}
    if not shapes:
        raise UserError(f"{model} holds no *.safetensors", "the memory budget counts the parameters in their headers")
    config = json.loads((model / "config.json").read_text())
    text = config.get("text_config", config)
    needed = ("num_hidden_layers", "hidden_size", "intermediate_size", "vocab_size", "num_attention_heads")
    try:
        sizes = [int(text[k]) for k in needed]
    except KeyError as error:
        raise UserError(f"{model / 'config.json'} has no {error}", "the memory budget needs it") from None
    kinds: list[str] = text.get("layer_types") or []
    interval = int(text.get("full_attention_interval") or 1)
    linears = [s for name, s in shapes.items() if len(s) == 2 and "embed" not in name and "lm_head" not in name]
    return ModelSize(
        parameters=sum(_product(shape) for shape in shapes.values()),
        adapter=sum(sum(shape) for shape in linears),
        layers=sizes[0],
        hidden=sizes[1],
        intermediate=sizes[2],
        vocabulary=sizes[3],
        attention_layers=kinds.count("full_attention") if kinds else sizes[0] // interval,
        pairs=int(text.get("num_key_value_heads") or sizes[4]),
        head=int(text.get("head_dim") or sizes[1] // sizes[4]),
    )


def budgets(config: Config, layout: Layout, size: ModelSize) -> list[Budget]:
    """Device while updating, device while sampling, vLLM's share of it, host of one node, disk of all checkpoints."""
    train = config.train
    trained = size.adapter * train.lora_rank if train.lora_rank else size.parameters
    w, p, t = layout.world_size, size.parameters, trained
    head = size.vocabulary * size.hidden
    layer = max(0, p - 2 * head) / size.layers
    tokens = config.policy.max_model_len * layout.micro_batch / layout.sequence_parallel
    kept = tokens * size.hidden * size.layers * 2
    if not train.gradient_checkpointing:
        kept *= 17  # Korthikanti et al. 2022, equation 2, without the attention scores: 34 s b h bytes a layer
    device = [
        Term(name="weights, fp32 shard", bytes=4 * p / w, formula="4 P / W"),
        Term(name="gradients, fp32 shard", bytes=4 * t / w, formula="4 T / W"),
        Term(name="Adam, fp32 shard", bytes=8 * t / w, formula="8 T / W"),
        Term(name="two layers gathered", bytes=2 * 2 * layer, formula="2 x 2 B x parameters of a layer"),
        *_lm_head(size, fused=train.fused_kernels),
        Term(name="kept activations", bytes=kept, formula="2 x tokens / sequence parallel x hidden x layers"),
        Term(
            name="one layer's insides",
            bytes=tokens * (12 * size.hidden + 3 * size.intermediate) * 2,
            formula="2 x tokens / sequence parallel x (12 hidden + 3 intermediate)",
        ),
        Term(name="context and communicators", bytes=_CONTEXT, formula="allowance"),
    ]
    if train.device == "cuda":
        device.append(Term(name="what a sleeping vLLM keeps", bytes=_ASLEEP, formula="allowance"))
    if not train.fused_kernels:
        # With packed episodes flash attention's loss writes the gradient into the logits' own place, and a temperature
        # of 1 copies nothing (verl 0.9.1, logprobs_from_logits and _scale_logits_by_temperature).
        copies = 1 if train.remove_padding and config.sampling.temperature == 1.0 else 2
        device.append(
            Term(
                name="logits",
                bytes=2 * copies * tokens * size.vocabulary,
                formula=f"2 x {copies} x tokens / sequence parallel x vocabulary; none with train.fused_kernels",
            )
        )
    resident = 0.0 if train.param_offload else 4 * p / w
    resident += 0.0 if train.optimizer_offload else 8 * t / w
    there = train.device_memory_gb * GB
    share_of_vllm = train.rollout_memory_utilization * there
    engine = [
        Term(name="weights", bytes=2 * p / layout.tensor_parallel, formula="2 P / rollout_tensor_parallel"),
        Term(
            name="keys and values of the longest episode",
            # Every device has at least one pair, as many times as it may be there then.
            bytes=2 * 2 * layout.context * size.attention_layers * size.head * -(-size.pairs // layout.tensor_parallel),
            formula="2 x 2 B x context x layers with full attention x head x pairs a device",
        ),
    ]
    sampling = [
        Term(name="vLLM", bytes=share_of_vllm, formula="rollout_memory_utilization"),
        Term(name="what the trainer leaves there", bytes=resident, formula="0 with both offloads"),
        Term(name="weight transfer", bytes=2 * GB, formula="one bucket"),
        Term(name="context and communicators", bytes=_CONTEXT, formula="allowance"),
    ]
    share = layout.devices_per_node / w
    moved = (4 * p if train.param_offload else 0.0) + (8 * t if train.optimizer_offload else 0.0)
    workers = -(-train.agent_workers // layout.nodes)
    # With an adapter vLLM sleeps at level 1, which keeps the base on the host (verl 0.9.1, _resolve_sleep_level).
    asleep = 2 * p / layout.tensor_parallel if train.lora_rank and train.device == "cuda" else 0.0
    host = [
        Term(name="offloaded shards", bytes=moved * share, formula="(4 P + 8 T) x devices of the node / W"),
        # A copy that does not block is to pinned memory, whose blocks have powers of two as sizes (torch 2.13,
        # CachingHostAllocator.h). On average over sizes a third is lost; measured on no GPU, so a half is counted.
        Term(
            name="rounding of pinned memory",
            bytes=moved * share / 2 if train.device == "cuda" else 0.0,
            formula="half of the offloaded shards, allowance",
        ),
        Term(name="loading, on the first node", bytes=4 * p, formula="4 P once, before the offload"),
        # Every rank reads and converts the whole checkpoint, tensor by tensor, and the other ranks let go of each at
        # once (transformers 5.10.4; measured on a 1.0 B model: a rank peaked 0.65 GB above its start).
        Term(
            name="loading, on each rank",
            bytes=6 * head * layout.devices_per_node,
            formula="(2 + 4) x vocabulary x hidden: the largest tensor as it is read and in fp32",
        ),
        Term(
            name="vLLM's weights while it sleeps",
            bytes=asleep * layout.devices_per_node,
            formula="2 P an engine of the node with an adapter, otherwise 0",
        ),
        Term(
            name="worlds", bytes=workers * config.episode.concurrency * _WORLD, formula="workers x concurrency x 0.1 GB"
        ),
        Term(
            name="processes",
            bytes=(2 * layout.devices_per_node + workers) * 3 * GB,
            formula="3 GB a process, allowance",
        ),
    ]
    disk = [
        Term(
            name="checkpoints",
            bytes=_CHECKPOINTS * (4 * p + 8 * t),
            formula=f"{_CHECKPOINTS} x (4 P + 8 T) on the disk",
        )
    ]
    return [
        Budget(name="device while updating", terms=device, available=there),
        Budget(name="device while sampling", terms=sampling, available=there),
        Budget(name="vLLM's share of a device", terms=engine, available=share_of_vllm),
        Budget(name="host memory of one node", terms=host, available=train.host_memory_gb * GB),
        Budget(name="disk for checkpoints", terms=disk, available=0.0),
    ]


def _lm_head(size: ModelSize, *, fused: bool) -> list[Term]:
    """Terms of the head while its gradient is computed."""
    head = size.vocabulary * size.hidden
    if not fused:
        return [Term(name="LM head gathered, with gradient", bytes=8 * head, formula="8 x vocabulary x hidden")]
    return [
        Term(
            name="LM head gathered, its gradient, a chunk's summand",
            bytes=12 * head,
            formula="12 x vocabulary x hidden",
        ),
        Term(
            name="logits of a chunk",
            bytes=4 * _OF_A_CHUNK * _CHUNK * size.vocabulary,
            formula=f"4 x {_OF_A_CHUNK} x {_CHUNK} tokens x vocabulary",
        ),
    ]


def check_budgets(found: list[Budget]) -> None:
    """Refuse a run that does not fit into what is known to be there.

    Raises:
        UserError: with every term of the budget that is exceeded.
    """
    for budget in found:
        if budget.available and budget.total > budget.available:
            raise UserError(
                f"the run does not fit: {budget.name} {budget.total / GB:.0f} GB of {budget.available / GB:.0f} GB",
                "\n  ".join(budget.lines()),
                "more devices (train.nodes), more sequence or tensor parallelism (train.ulysses, "
                "train.rollout_tensor_parallel), a shorter policy.max_model_len, train.fused_kernels=true, or an "
                "adapter (train.lora_rank)",
            )


def _header(path: Path) -> dict[str, dict[str, list[int]]]:
    """The JSON header of a safetensors file: 8 bytes of length, then the header."""
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header: dict[str, dict[str, list[int]]] = json.loads(file.read(length))
    return header


def _product(shape: list[int]) -> int:
    out = 1
    for size in shape:
        out *= size
    return out
