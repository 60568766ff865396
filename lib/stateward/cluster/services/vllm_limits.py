"""How long vLLM itself waits for its engine."""

from __future__ import annotations

import math


def limits_environment(startup_seconds: float) -> dict[str, str]:
    """Variables that give vLLM's own limits of a start as many seconds as ours has.

    vLLM (0.27 and 0.32) waits 600 s for an engine and 300 s for one call of its workers. A first start on new kernels
    compiles for longer, in the engine's profile run or in its first requests.
    """
    seconds = str(math.ceil(startup_seconds))
    return {"VLLM_ENGINE_READY_TIMEOUT_S": seconds, "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS": seconds}
