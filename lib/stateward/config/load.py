"""Read a configuration file and dotted overrides into the typed schema."""

from __future__ import annotations

import copy
import functools
import json
from collections.abc import Sequence
from dataclasses import asdict, fields, is_dataclass
from pathlib import Path
from typing import Any, cast

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import ConfigKeyError, OmegaConfBaseException

from stateward.config.bounds import BOUNDS, require_bounds, require_ranks
from stateward.config.parties import require_known_parties
from stateward.config.paths import resolve_paths
from stateward.config.schema import Config
from stateward.errors import UserError, nearest


def load_config(path: Path | str, overrides: Sequence[str] = ()) -> Config:
    """The configuration in `path` with `overrides` (``train.steps=3``) applied, checked and complete.

    Relative paths in the file are relative to its folder, and those of overrides to the working directory (`paths`).

    Raises:
        UserError: no such file, not YAML, an unknown or mistyped key, a missing mandatory value, a number out of its
            bounds, a party of unknown kind.
    """
    path = Path(path)
    if not path.is_file():
        raise UserError(f"{path}: no such configuration file", do="name one of configs/*.yaml, or your own")
    try:
        node = OmegaConf.load(path)
    except yaml.YAMLError as error:
        raise UserError(f"{path} is not valid YAML", str(error)) from error
    if not isinstance(node, DictConfig):
        raise UserError(f"{path} holds a list", "a configuration is a mapping of sections", "see configs/practice.yaml")
    resolve_paths(node, path.parent)
    merged = _merge(_schema(), node, str(path))  # a copy of the schema
    for text in overrides:
        merged = _merge(merged, _override(text), f"override {text!r}")
    missing = sorted(str(key) for key in OmegaConf.missing_keys(merged))
    if missing:
        raise UserError(
            f"{path}: no value for {', '.join(missing)}",
            "these have no default",
            f"add them to the file or say {missing[0]}=VALUE on the command line",
        )
    config = cast(Config, OmegaConf.to_object(merged))
    require_bounds(config, BOUNDS)
    require_ranks(config)
    require_known_parties(config.episode)
    return config


def config_to_dict(config: Any) -> dict[str, Any]:
    """Plain JSON-ready dict of a configuration or of one section."""
    return asdict(config)


def _override(text: str) -> DictConfig:
    if "=" not in text:
        raise UserError(f"override {text!r} has no '='", do="write SECTION.KEY=VALUE, for instance train.steps=3")
    try:
        node = OmegaConf.from_dotlist([text])
    except (yaml.YAMLError, OmegaConfBaseException) as error:
        raise UserError(f"override {text!r} cannot be read", str(error), "write SECTION.KEY=VALUE") from error
    resolve_paths(node, Path())
    return node


def resolved_overrides(overrides: Sequence[str]) -> list[str]:
    """The same overrides with absolute paths, for a command that runs in another folder."""
    return [_resolved_override(text) for text in overrides]


def _resolved_override(text: str) -> str:
    node, (key, _, _) = _override(text), text.partition("=")
    if node == OmegaConf.from_dotlist([text]):
        return text
    value = OmegaConf.select(node, key)
    plain = OmegaConf.to_container(value) if OmegaConf.is_config(value) else value
    return f"{key}={json.dumps(plain, ensure_ascii=False)}"


@functools.cache
def _schema() -> Any:
    # Working it out is half of what reading a configuration takes.
    return OmegaConf.structured(Config)


def _merge(base: Any, top: DictConfig, where: str) -> Any:
    """`base` with the values of `top`. The shared schema is copied first, which takes longer than the rest."""
    try:
        return OmegaConf.unsafe_merge(copy.deepcopy(base) if base is _schema() else base, top)
    except ConfigKeyError as error:
        key = str(error.full_key or error.key)
        raise UserError(f"{where}: unknown key {key!r}", do=nearest(key.split(".")[-1], _siblings(key))) from error
    except OmegaConfBaseException as error:
        message = str(error).splitlines()[0]
        raise UserError(f"{where}: {error.full_key or 'value'} does not fit", message) from error


def _siblings(key: str) -> list[str]:
    """The valid names beside the last part of a dotted key."""
    node: Any = Config
    for part in key.split(".")[:-1]:
        kinds = {f.name: f.default_factory for f in fields(node)} if is_dataclass(node) else {}
        factory = kinds.get(part)
        if not callable(factory):
            return []
        node = type(factory())
    return [f.name for f in fields(node)] if is_dataclass(node) else []


def config_from_dict(values: dict[str, Any]) -> Config:
    """Inverse of `config_to_dict` for a whole configuration, as read back from a shard's plan or a manifest."""
    merged = _merge(_schema(), cast(DictConfig, OmegaConf.create(values)), "stored configuration")
    return cast(Config, OmegaConf.to_object(merged))
