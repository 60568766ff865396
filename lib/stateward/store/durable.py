"""Files that appear under their name whole and stay there, whatever ends the process or the node meanwhile."""

from __future__ import annotations

import os
import socket
from pathlib import Path


def write_text(path: Path, text: str) -> None:
    """Replace `path` atomically and durably. Who has it open reads the old text to its end."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{socket.gethostname()}.{os.getpid()}.tmp")
    temporary.write_text(text, encoding="utf-8")
    move_into_place(temporary, path)


def move_into_place(temporary: Path, path: Path) -> None:
    """Give a file that was written beside `path` that name. Its bytes are on disk before the name is."""
    with open(temporary, "rb") as file:
        os.fsync(file.fileno())
    os.replace(temporary, path)
    fsync_directory(path.parent)


def fsync_directory(path: Path) -> None:
    """Make a rename or a new name in `path` durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
