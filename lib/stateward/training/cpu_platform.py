"""Processor cores as a platform of Verl's, through Verl's own registry: the practice campaign runs on it.

Verl 0.9.1 knows CUDA-like devices only, but asks a `PlatformBase` for everything that is special about them. This one
answers for cores. It is registered when `verl_plugin` is imported with ``VERL_PLATFORM=cpu``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import psutil
import torch
from verl.plugin.platform import PlatformBase, PlatformRegistry

from stateward.cluster.services.cpu_kernels import allow_amx

allow_amx()  # before the first kernel of a trainer process


class CpuDevice(str):
    """The one device. Verl uses its platform's device as a string, in ``f"{name}:{device}"``, and as an index."""

    def __new__(cls) -> CpuDevice:
        return super().__new__(cls, "cpu")

    def __format__(self, spec: str) -> str:
        return "0"

    def __int__(self) -> int:
        return 0


class _CpuModule(ModuleType):
    """`torch.cpu`, with the memory and random-state calls that Verl makes on `torch.cuda`."""

    def __getattr__(self, name: str) -> Any:
        return getattr(torch.cpu, name)

    @staticmethod
    def _nothing(*_: Any, **__: Any) -> None:
        return None

    @staticmethod
    def _zero(*_: Any, **__: Any) -> int:
        return 0

    empty_cache = ipc_collect = reset_peak_memory_stats = set_per_process_memory_fraction = set_device = _nothing
    memory_allocated = memory_reserved = max_memory_allocated = max_memory_reserved = _zero

    @staticmethod
    def mem_get_info(*_: Any) -> tuple[int, int]:
        memory = psutil.virtual_memory()
        return memory.available, memory.total

    @staticmethod
    def get_device_name(*_: Any) -> str:
        return "CPU"

    @staticmethod
    def get_rng_state(*_: Any) -> torch.Tensor:
        return torch.get_rng_state()

    @staticmethod
    def set_rng_state(state: torch.Tensor, *_: Any) -> None:
        torch.set_rng_state(state)


@PlatformRegistry.register(platform="cpu")
class CpuPlatform(PlatformBase):  # type: ignore[misc]
    """See `verl.plugin.platform.PlatformBase` for what each member means."""

    _module = _CpuModule("stateward_cpu_device")

    @property
    def device_name(self) -> str:
        return "cpu"

    @property
    def vendor_name(self) -> str:
        return "cpu"

    @property
    def device_module(self) -> ModuleType:
        return self._module

    def is_available(self) -> bool:
        return True

    def current_device(self) -> Any:
        return CpuDevice()

    def device_count(self) -> int:
        return 1

    def set_device(self, device_index: int) -> None:
        return None

    def synchronize(self, device_index: int | None = None) -> None:
        return None

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        torch.manual_seed(seed)

    def set_allocator_settings(self, settings: str) -> None:
        return None

    def empty_cache(self) -> None:
        return None

    def get_device_capability(self, device_index: int = 0) -> tuple[int | None, int | None]:
        return None, None

    def communication_backend_name(self) -> str:
        return "gloo"

    def visible_devices_envvar(self) -> str:
        return "CUDA_VISIBLE_DEVICES"

    @contextmanager
    def nvtx_range(self, msg: str) -> Iterator[None]:
        yield

    def profiler_start(self) -> None:
        return None

    def profiler_stop(self) -> None:
        return None

    def ray_resource_name(self) -> str:
        return "GPU"  # Verl counts nothing else; the private Ray declares one a slot

    def ray_noset_envvars(self) -> list[str]:
        return ["RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"]

    def is_ipc_supported(self) -> bool:
        return False  # weights go to vLLM through shared memory

    def cudart(self) -> Any:
        return None
