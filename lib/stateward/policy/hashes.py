"""SHA-256 of large files, in parallel, and remembered: a checkpoint's weights are hashed once and not at every command.

What is remembered is keyed by path, size and modification time, in the user's cache folder. A file that was modified
within the last seconds is hashed again each time, since a second change could leave the same time stamp.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

_CHUNK = 1 << 20
_SETTLED_SECONDS = 10.0
_THREADS = 4  # hashing releases the interpreter lock; more threads only queue for the file system


def hash_files(paths: Sequence[Path]) -> list[str]:
    """SHA-256 of each file's bytes, in hex, in order."""
    store = _store()
    known = _read(store)
    fresh: dict[str, list[Any]] = {}

    def one(path: Path) -> str:
        status, name = path.stat(), str(path.resolve())
        stamp = [status.st_size, status.st_mtime_ns]
        entry = known.get(name)
        if isinstance(entry, list) and entry[:2] == stamp:
            return str(entry[2])
        digest = _hash(path)
        if time.time() - status.st_mtime > _SETTLED_SECONDS:
            fresh[name] = [*stamp, digest]
        return digest

    with ThreadPoolExecutor(_THREADS) as pool:
        found = list(pool.map(one, paths))
    if fresh:
        _write(store, known | fresh)
    return found


def _hash(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def _store() -> Path:
    root = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(root) / "stateward" / "file-hashes.json"


def _read(store: Path) -> dict[str, Any]:
    try:
        content = json.loads(store.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _write(store: Path, content: dict[str, Any]) -> None:
    # Two writers may lose each other's entries, which costs a hash; the file is whole at any time.
    with contextlib.suppress(OSError):  # a cache folder that cannot be written costs time, nothing else
        store.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=store.parent, delete=False, encoding="utf-8") as file:
            json.dump(content, file)
        os.replace(file.name, store)
