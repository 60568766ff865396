"""Write a folder of files all at once or not at all."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Mapping
from pathlib import Path

from stateward.store.durable import fsync_directory


def publish(folder: Path, files: Mapping[str, bytes]) -> bool:
    """Make `folder` hold exactly these files (names may contain ``/``). False: it did already, and nothing was touched.

    The files are written and synced beside it, then renamed into place. An older folder is moved aside first, to
    ``.NAME.old``, and moved back if the second rename fails or, after a kill between the two, by the next call. So a
    reader sees the old files, the new ones, or, for the moment between two renames, none; never a mixture.
    """
    old = folder.with_name(f".{folder.name}.old")
    if old.exists() and not folder.exists():
        os.rename(old, folder)
    if _holds(folder, files):
        return False
    folder.parent.mkdir(parents=True, exist_ok=True)
    new = folder.with_name(f".{folder.name}.{socket.gethostname()}.{os.getpid()}.new")
    shutil.rmtree(new, ignore_errors=True)
    shutil.rmtree(old, ignore_errors=True)
    try:
        _write(new, files)
        if folder.exists():
            os.rename(folder, old)
            try:
                os.rename(new, folder)
            except OSError:
                os.rename(old, folder)
                raise
        else:
            os.rename(new, folder)
        fsync_directory(folder.parent)
    finally:
        shutil.rmtree(new, ignore_errors=True)
        if folder.exists():
            shutil.rmtree(old, ignore_errors=True)
    return True


def _write(folder: Path, files: Mapping[str, bytes]) -> None:
    folders = {folder}
    folder.mkdir()
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        folders.add(path.parent)
        with open(path, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    for inner in folders:
        fsync_directory(inner)


def _holds(folder: Path, files: Mapping[str, bytes]) -> bool:
    if not folder.is_dir():
        return False
    present = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if not p.is_dir()}
    return present == set(files) and all((folder / name).read_bytes() == content for name, content in files.items())
