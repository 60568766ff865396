"""What an image is and what it finds on this node, as one line of JSON. Runs inside the image.

python -m stateward.cluster.image_facts
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import io
import json
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

#: The line that `image_check` looks for among whatever else a node prints.
MARK = "stateward-image "
#: Where containers/*.def put the sources, the locks with them.
LOCKS = Path("/opt/stateward/src/containers")


def facts() -> dict[str, Any]:
    """Nothing raises: what does not work is part of the report."""
    lock = LOCKS / ("requirements.lock" if _cuda() else "practice.lock")
    shared = os.statvfs("/dev/shm")
    return {
        "node": os.environ.get("SLURMD_NODENAME", os.uname().nodename),
        "cuda": _cuda(),
        "driver": driver(Path("/proc/driver/nvidia/version")),
        "nccl": _nccl(),
        "plugin": network_plugin(),
        "shm_gb": round(shared.f_frsize * shared.f_blocks / 2**30, 1),
        "tmp": _unwritable(tempfile.gettempdir()),
        "site": [path for path in sys.path if path.startswith(os.path.expanduser("~") + os.sep)],
        "lock": hashlib.sha256(lock.read_bytes()).hexdigest() if lock.is_file() else "",
        "lock_name": lock.name,
        "drift": drift(lock) if lock.is_file() else [],
    }


def driver(version: Path) -> str:
    """Version of NVIDIA's driver that the kernel has loaded; empty if none."""
    if not version.is_file():
        return ""
    found = re.search(r"Kernel Module(?: for \S+)?\s+(\d+(?:\.\d+)+)", version.read_text())
    return found[1] if found else ""


def network_plugin() -> str:
    """NCCL's network plugin as name and digest: the library that NCCL would find; ``none`` for its built-in ones."""
    wanted = os.environ.get("NCCL_NET_PLUGIN", "")
    if wanted == "none":
        return "none"
    names = [wanted, f"libnccl-net-{wanted}.so"] if wanted else ["libnccl-net.so"]
    folders = [
        *os.environ.get("LD_LIBRARY_PATH", "").split(":"),
        "/usr/lib/x86_64-linux-gnu",
        "/usr/local/lib",
        "/usr/lib",
    ]
    for folder in folders:
        for name in names:
            path = Path(folder or ".", name)
            if folder and path.is_file():
                return f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()[:12]}"
    return f"{wanted} (not found)" if wanted else "none"


def drift(lock: Path) -> list[str]:
    """A line for each package whose installed version is not the lock's."""
    out = []
    for name, version in re.findall(
        r"^([A-Za-z0-9][\w.-]*)(?:\[[^]]*\])?==([^\s;\\]+)", lock.read_text(), re.MULTILINE
    ):
        try:
            found = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found = "nothing"
        if found != version:
            out.append(f"{name} {found}, not {version}")
    return out


def _unwritable(folder: str) -> str:
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"1")
    except OSError as error:
        return str(error)
    return ""


def _cuda() -> str:
    """CUDA that torch was built for; empty for a CPU build."""
    import torch

    return str(torch.version.cuda or "")


def _nccl() -> str:
    import torch

    return ".".join(map(str, torch.cuda.nccl.version())) if torch.version.cuda else ""


if __name__ == "__main__":
    # Packages print as they are imported; this program's own line stays alone.
    with contextlib.redirect_stdout(io.StringIO()):
        found = facts()
    print(MARK + json.dumps(found))
