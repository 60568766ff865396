"""Typed configuration: YAML files and dotted overrides (`load_config`). Imports no torch, so `--help` stays fast."""

from stateward.config.load import config_to_dict, load_config
from stateward.config.schema import (
    BandConfig,
    Config,
    CurateConfig,
    EndpointConfig,
    EpisodeConfig,
    EvaluateConfig,
    FieldsConfig,
    GradeConfig,
    PolicyConfig,
    PolicyEndpointConfig,
    ProbeConfig,
    ReferenceConfig,
    SamplingConfig,
    SandboxConfig,
    ServeConfig,
    TasksConfig,
    TrainConfig,
)

__all__ = [
    "BandConfig",
    "Config",
    "CurateConfig",
    "EndpointConfig",
    "EpisodeConfig",
    "EvaluateConfig",
    "FieldsConfig",
    "GradeConfig",
    "PolicyConfig",
    "PolicyEndpointConfig",
    "ProbeConfig",
    "ReferenceConfig",
    "SamplingConfig",
    "SandboxConfig",
    "ServeConfig",
    "TasksConfig",
    "TrainConfig",
    "config_to_dict",
    "load_config",
]
