"""Relative paths of a configuration: each is resolved once, against the file that contains it.

Jobs start in other folders and on other machines than the command that submits them, so nothing relative may be left
for them. A path in a file is relative to that file's folder, and one on the command line to the working directory.
"""

from __future__ import annotations

import os
from pathlib import Path

from omegaconf import DictConfig, ListConfig, OmegaConf

#: What names a file or a folder.
_PATHS = ("run_dir", "tasks.dataset", "tasks.servers", "policy.model", "simulator.model")
#: Lists: a file, or a name inside the dataset.
_LISTS = ("tasks.train", "tasks.benchmark")
_MANY = ("curate.exclude",)
#: Stands for what the package bundles.
_BUNDLED = "practice"


def resolve_paths(node: DictConfig, folder: Path) -> None:
    """Make the relative paths of `node` absolute, in place. `folder`: what they are relative to."""
    for key in (*_PATHS, *_LISTS):
        value = OmegaConf.select(node, key, throw_on_missing=False)
        if isinstance(value, str) and value and value != _BUNDLED:
            whole = resolved(value, folder)
            if key not in _LISTS or Path(whole).is_file():
                OmegaConf.update(node, key, whole)
    for key in _MANY:
        values = OmegaConf.select(node, key, throw_on_missing=False)
        if isinstance(values, ListConfig):
            OmegaConf.update(node, key, [resolved(str(value), folder) for value in values])


def resolved(path: str, folder: Path) -> str:
    """`path` as an absolute one. Links on the way stay as they are: another machine may have them elsewhere."""
    return os.path.normpath(folder.absolute() / path)
