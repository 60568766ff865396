"""A server's own temporary folder, which goes with the server and its starter, however they end.

vLLM leaves a socket or two and a rendezvous file in the temporary folder for every start, and more when it is killed. A
shell of a megabyte holds the read end of a pipe whose write end both the starter and the server hold: when the last of
them is gone, the pipe ends and the shell removes the folder. Nothing else does, so the killed and the orderly end are
one way.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from stateward.errors import UserError

#: A Unix socket path has at most 107 bytes; vLLM (0.27 and 0.32) appends a slash and a UUID to its temporary folder.
MAX_FOLDER = 107 - 1 - 36

#: Where a short folder is to be had when the usual one is long.
_SHORT = "/tmp"

_PATIENCE_SECONDS = 20.0  # for heirs that are still ending; the folder goes with the last of them all the same

# Slurm, an interrupt and a closed terminal signal whole groups; the folder is in use until the pipe ends.
_SWEEP = 'trap "" TERM INT HUP; read -r _; exec rm -rf -- "$0"'


@dataclass(frozen=True, kw_only=True)
class Scratch:
    """`folder` is private and empty; a server that inherits the file descriptor `hold` keeps it in being."""

    folder: Path
    hold: int


@contextlib.contextmanager
def scratch_folder(prefix: str) -> Iterator[Scratch]:
    """A private folder short enough for Unix sockets; removed after the block, once no heir of `hold` is left.

    Raises:
        UserError: no folder is short enough.
    """
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=_base(prefix)))
    read, write = os.pipe()
    try:
        sweeper = subprocess.Popen(
            ["sh", "-c", _SWEEP, str(folder)], stdin=read, stdout=subprocess.DEVNULL, start_new_session=True
        )
    except BaseException:
        os.close(write)
        folder.rmdir()
        raise
    finally:
        os.close(read)
    try:
        yield Scratch(folder=folder, hold=write)
    finally:
        os.close(write)
        with contextlib.suppress(subprocess.TimeoutExpired):
            sweeper.wait(_PATIENCE_SECONDS)


def _base(prefix: str) -> str:
    room = MAX_FOLDER - len(prefix) - len("/") - 8  # mkdtemp adds eight letters
    usual = tempfile.gettempdir()
    for base in (usual, _SHORT):
        if len(os.fsencode(base)) <= room and os.access(base, os.W_OK):
            return base
    raise UserError(
        f"the temporary folder {usual} has {len(os.fsencode(usual))} bytes",
        f"a server's Unix sockets lie below it and Linux allows 107 bytes a path, so it may have {room}",
        f"set TMPDIR to a short path such as {_SHORT}",
    )
