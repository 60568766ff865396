"""How much of the time the devices of a node stand idle, as NVIDIA's management library sees it."""

from __future__ import annotations

import threading
from typing import Any

_EVERY_SECONDS = 5.0
#: Utilisation in percent below which a device counts as idle; a resting H100 reports 0 to 2.
_IDLE_BELOW = 5


class IdleMeter:
    """Samples in a thread from its start on. Where there is no NVIDIA device it measures nothing."""

    def __init__(self, nvml: Any = None, every_seconds: float = _EVERY_SECONDS) -> None:
        self._nvml = nvml or _load_nvml()
        self._lock = threading.Lock()
        self._idle = self._samples = 0
        if self._nvml is None:
            return
        self._devices = [self._nvml.nvmlDeviceGetHandleByIndex(i) for i in range(self._nvml.nvmlDeviceGetCount())]
        self._every = every_seconds
        self._stop = threading.Event()
        threading.Thread(target=self._run, name="idle-meter", daemon=True).start()

    def take(self) -> tuple[int, int]:
        """Idle samples and all samples since the last call, summed over the node's devices."""
        with self._lock:
            found = self._idle, self._samples
            self._idle = self._samples = 0
        return found

    def sample(self) -> None:
        """Look once at every device."""
        busy = [self._nvml.nvmlDeviceGetUtilizationRates(device).gpu for device in self._devices]
        with self._lock:
            self._idle += sum(percent < _IDLE_BELOW for percent in busy)
            self._samples += len(busy)

    def _run(self) -> None:
        while not self._stop.wait(self._every):
            self.sample()


def _load_nvml() -> Any:
    """The library, started; None without the package or a driver."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    return pynvml
