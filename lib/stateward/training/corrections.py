"""What `verl_hooks` puts in the place of functions of Verl 0.9.1: each takes the original and returns its replacement.

Nothing heavy is imported here, since every process of a run loads it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any


def head_on_device(original: Any) -> Any:
    """The fused loss multiplies hidden states with the LM head's weight, which stays on the host when parameters are
    offloaded by policy; they must meet on one device. The gradient flows back through the copy."""

    def forward(self: Any, hidden_states: Any, vocab_weights: Any, input_ids: Any, temperature: float = 1.0) -> Any:
        if vocab_weights.device != hidden_states.device:
            vocab_weights = vocab_weights.to(hidden_states.device, non_blocking=True)
        return original(self, hidden_states, vocab_weights, input_ids, temperature)

    return forward


def reduced_head(original: Any) -> Any:
    """Gather the LM head's weight so that its gradient is averaged over the ranks.

    An untied head is a unit of its own under FSDP2, but the fused loss takes its weight and never calls it. FSDP then
    reduces no gradient of it, and the backward of ``full_tensor()`` keeps each rank's part of its own gradient. On N
    ranks it is wrong by about sqrt(N - 1) of its norm, while loss and log-probabilities are right.
    """

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        from torch.distributed.tensor import DTensor

        weight = self.lm_head._parameters.get("weight")
        if not isinstance(weight, DTensor):
            return original(self, *args, **kwargs)
        # The original reads `lm_head.weight`: for as long as it runs, that is the gathered tensor.
        del self.lm_head._parameters["weight"]
        self.lm_head.__dict__["weight"] = gathered(weight)
        try:
            return original(self, *args, **kwargs)
        finally:
            del self.lm_head.__dict__["weight"]
            self.lm_head._parameters["weight"] = weight

    return forward


def gathered(weight: Any) -> Any:
    """The whole tensor of a sharded `weight`. Its gradient is averaged over the ranks, as FSDP does with all others.

    The backward is one reduce-scatter of the whole tensor in its own precision.
    """
    import torch
    from torch.distributed.tensor import DTensor, Partial

    mesh, placements = weight.device_mesh, weight.placements

    class Gather(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, sharded: Any) -> Any:
            return sharded.full_tensor()

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            # Each rank holds the gradient of its own tokens: a summand, not a copy.
            summands = DTensor.from_local(gradient, mesh, [Partial()] * mesh.ndim, run_check=False)
            return summands.redistribute(mesh, placements) / mesh.size()

    return Gather.apply(weight)


def reduce_every_micro_batch(original: Any) -> Any:
    """Deferring the reduction keeps whole gradients in memory over all micro-batches: 4 bytes a parameter on every
    device, 108 GB for a 27B model. `FSDPEngineConfig` defaults to it although Verl's YAML does not."""

    @contextmanager
    def context(self: Any, *, is_last_micro_batch: bool) -> Iterator[None]:
        yield

    return context


def multimodal_by_inputs(original: Any) -> Any:
    """Under sequence parallelism Verl asks whether the *model* can see, not whether this batch holds an image, and then
    embeds the whole sequence on every device before it is divided. A batch of text is divided here at once, and the
    decoder is told so (`_needs_initial_slice`, which Verl's wrapper of it reads)."""

    def prepare_model_inputs(self: Any, micro_batch: Any) -> Any:
        sees = hasattr(getattr(self.module, "module", self.module).config, "vision_config")
        if not (self.use_ulysses_sp and sees):
            return original(self, micro_batch)
        text_only = not _has_media(micro_batch)
        for part in self.module.modules():
            if type(part).__name__.endswith("TextModel"):
                part._needs_initial_slice = not text_only
        if not text_only:
            return original(self, micro_batch)
        with _seen_as_text_model(self):
            return original(self, micro_batch)

    return prepare_model_inputs


@contextmanager
def _seen_as_text_model(engine: Any) -> Iterator[None]:
    """The one question that the original asks of the module is whether its config has `vision_config`."""
    module = engine.__dict__["module"]
    engine.__dict__["module"] = SimpleNamespace(config=SimpleNamespace())
    try:
        yield
    finally:
        engine.__dict__["module"] = module


def _has_media(micro_batch: Any) -> bool:
    from verl.utils.model import extract_multi_modal_inputs

    return bool(extract_multi_modal_inputs(micro_batch.get("multi_modal_inputs", [])))


#: Set to 1 in every worker by `train.freeze_embeddings`.
FREEZE = "STATEWARD_FREEZE_EMBEDDINGS"


def frozen_embeddings(original: Any) -> Any:
    """Keep token embeddings and LM head as they are where the configuration asks for it. Adam moves the row of an
    identifier that stands in a single task as far as a weight that all tasks share, so that a small policy on a small
    pool learns the tasks by heart. Verl has no setting for it."""

    def build_module(self: Any) -> Any:
        module = original(self)
        if os.environ.get(FREEZE) == "1":
            for part in (module.get_input_embeddings(), module.get_output_embeddings()):
                part.requires_grad_(False)
        return module

    return build_module


def seeded_adapter(original: Any) -> Any:
    """Half of a new adapter is drawn at random, by Verl from a generator that nobody has seeded: two runs of one seed
    would differ from their first step on. It is drawn on the host; every rank draws the same."""

    def build_lora_module(self: Any, module: Any) -> Any:
        import torch

        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(self.engine_config.seed)
            return original(self, module)

    return build_lora_module


def adapter_names(original: Any) -> Any:
    """Verl asks vLLM's table of names for the part that an adapter's tensors need by the name that it had up to vLLM
    0.28. On a newer one loading an adapter fails in the engine, and the trainer that sends it waits for ever."""

    def hijack() -> None:
        from vllm.model_executor.models.utils import WeightsMapper

        if not hasattr(WeightsMapper, "get_unstacked_mapper"):
            WeightsMapper.get_unstacked_mapper = WeightsMapper.get_rename_mapper
        original()

    return hijack


#: How long one rank of the trainer may wait for another. All wait while the first reads the whole model.
GROUP_SECONDS = 1800


def process_group(original: Any) -> Any:
    """Verl asks for the backends ``cpu:gloo,<device>:<backend>``, which on processor cores would name the CPU twice.

    And its worker passes no limit on, ``nccl_timeout`` or not: Torch's own of ten minutes ends a start that reads a 27B
    model at 90 MB/s.
    """

    def initialize(timeout_second: int | None = None, backend: str | None = None) -> None:
        one = "cpu:gloo" if os.environ.get("VERL_PLATFORM") == "cpu" else None
        original(timeout_second or GROUP_SECONDS, backend or one)

    return initialize
