"""Relative paths of a configuration: each is resolved once, against the file that contains it.

Jobs start in other folders and on other machines than the command that submits them, so nothing relative may be left
for them. A path in a file is relative to that file's folder, and one on the command line to the working directory.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

#: What names a file or a folder.
_PATHS = ("run_dir", "tasks.dataset", "tasks.servers", "policy.model", "simulator.model")
#: Lists: a file, or a name inside the dataset.
_LISTS = ("tasks.train", "tasks.benchmark")
_MANY = ("curate.exclude",)
#: Stands for what the package bundles.
_BUNDLED = "practice"


def resolve_paths(node: DictConfig, folder: Path) -> None:
    """Make the relative paths of `node` absolute, in place. `folder`: what they are relative to.

    Interpolations stay text, as another file or an override may give their values; a path that begins with one is as
    absolute as that value.
    """
    written = OmegaConf.to_container(node, resolve=False)
    for key in (*_PATHS, *_LISTS):
        value = _written(written, key)
        if isinstance(value, str) and value and value != _BUNDLED and not value.startswith("${"):
            whole = resolved(value, folder)
            if key not in _LISTS or Path(whole).is_file():
                OmegaConf.update(node, key, whole)
    for key in _MANY:
        values = _written(written, key)
        if isinstance(values, list):
            OmegaConf.update(node, key, [resolved(str(value), folder) for value in values])


def _written(written: Any, key: str) -> Any:
    """The value under a dotted key as it is written; None where there is none."""
    for part in key.split("."):
        written = written.get(part) if isinstance(written, dict) else None
    return written


def resolved(path: str, folder: Path) -> str:
    """`path` as an absolute one. Links on the way stay as they are: another machine may have them elsewhere."""
    return os.path.normpath(folder.absolute() / path)
