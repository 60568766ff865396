"""The working directory of one world: its own, so that what one episode writes into a file ends with that episode."""

from __future__ import annotations

import os
import shutil

_NAME = "cwd"  # inside a process's scratch folder; no child's folder is called so


def enter(scratch: str, *, shared: bool, filled: bool = True) -> None:
    """Give this process a working directory inside `scratch`, with what stands in its present one.

    Args:
        shared: the present one is the folder that servers.yaml names, not a private one.
        filled: False: begin with an empty one.
    """
    folder = os.path.join(scratch, _NAME)
    os.mkdir(folder, 0o700)
    if filled:
        fill(os.getcwd(), folder, shared=shared)
    os.chdir(folder)


def fill(source: str, folder: str, *, shared: bool) -> None:
    """Copy the files of `source` into `folder`.

    Folders of a private `source` are copied too; those of a `shared` one, which may hold anything, become links: a
    server that changes files below them changes them for every world, and the worlds' initial states show it.
    """
    with os.scandir(source) as entries:
        for entry in entries:
            target = os.path.join(folder, entry.name)
            if entry.is_symlink() and not shared:
                os.symlink(os.readlink(entry.path), target)  # a relative one then names the copy
            elif entry.is_file():
                shutil.copy(entry.path, target)  # of a link too: writing through it would change the original
            elif entry.is_dir() and not shared:
                os.mkdir(target, 0o700)
                fill(entry.path, target, shared=False)
            else:
                os.symlink(os.path.abspath(entry.path), target)
