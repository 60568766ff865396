"""One dataclass a component. Units stand in names or comments; every default is the published run's or says why.

A field exists because a user needs it today. Unknown keys in a file or an override are refused by `load_config`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

#: Flags of vLLM, in `extra`, that multiply the devices of one server.
RANK_FLAGS = ("pipeline-parallel-size", "data-parallel-size")


@dataclass(kw_only=True)
class TasksConfig:
    dataset: str = "???"  # a folder with agent/, scenario/, test_case/; "practice" is the bundled world
    train: str = "???"  # selector list (YAML) of the tasks that may be probed and trained on
    benchmark: str = "???"  # selector list of the held-out tasks
    agent: str = "default"  # agent/NAME.yaml
    servers: str = ""  # servers.yaml; empty: the one inside or beside the dataset


@dataclass(kw_only=True)
class PolicyConfig:
    model: str = "???"  # checkpoint directory in Hugging Face format; "practice" is the bundled tiny policy
    tool_parser: str = "qwen3_xml"  # a name of vLLM's tool parser registry
    reasoning_parser: str = "qwen3"  # "" for a model that does not think
    template: dict[str, Any] = field(default_factory=dict)  # settings of the chat template, e.g. reasoning_effort: low
    max_model_len: int = 133_120  # tokens, prompt and response
    max_prompt_tokens: int = 26_624  # a longer first prompt is refused by name, never cut


@dataclass(kw_only=True)
class SamplingConfig:
    temperature: float = 1.0
    top_k: int = 20  # -1: off
    top_p: float = 0.95
    max_tokens_per_turn: int = 8_192
    seed: int = 42


@dataclass(kw_only=True)
class EngineConfig:
    """One vLLM server. `extra` is passed on as further `vllm serve` flags (name without dashes → value)."""

    tensor_parallel: int = 8
    dtype: str = "bfloat16"
    gpu_memory_utilization: float = 0.85
    max_num_seqs: int = 16
    max_num_batched_tokens: int = 8_192
    enable_prefix_caching: bool = True
    enforce_eager: bool = False
    startup_seconds: float = 1_800.0  # of `serve` also for the engines of a training
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def devices(self) -> int:
        """GPUs of one server: its parallel ranks, those that `extra` asks of vLLM included."""
        return self.tensor_parallel * math.prod(int(self.extra.get(flag, 1)) for flag in RANK_FLAGS)


@dataclass(kw_only=True)
class ServeConfig(EngineConfig):
    """The policy's vLLM replicas."""

    replicas: int = 8  # of a sampling stage on a cluster, one an array task; --shards wins


@dataclass(kw_only=True)
class SimulatorConfig(EngineConfig):
    """The model behind endpoints of `kind: simulator`: our vLLM beside the stage, for clusters without internet."""

    model: str = ""  # checkpoint directory in Hugging Face format
    max_model_len: int = 32_768  # tokens, conversation and answer
    max_num_seqs: int = 64  # its answers are short, and every episode asks


@dataclass(kw_only=True)
class EndpointConfig:
    """A chat endpoint. The API key is read from the environment variable named here, never from a file of ours."""

    kind: str = "scripted"  # scripted | chat | simulator (the model of the section `simulator`, which we serve) | none
    base_url: str = ""
    model: str = ""
    api_key_env: str = ""
    temperature: float = 0.0
    max_tokens: int = 1_024
    timeout_seconds: float = 120.0
    max_retries: int = 6
    extra: dict[str, Any] = field(default_factory=dict)  # further request parameters; null: one of ours is not sent


@dataclass(kw_only=True)
class SandboxConfig:
    max_worlds: int = 64
    tool_deadline_seconds: float = 30.0  # covers queueing
    open_deadline_seconds: float = 60.0
    idle_seconds: float = 1_800.0
    max_output_bytes: int = 1_000_000
    world_memory_mb: int = 2_048
    world_cpu_seconds: int = 600


@dataclass(kw_only=True)
class GradeConfig:
    deadline_seconds: float = 60.0
    memory_mb: int = 2_048
    require: list[str] = field(
        default_factory=list
    )  # layers of confinement without which nothing is graded, e.g. landlock


@dataclass(kw_only=True)
class EpisodeConfig:
    concurrency: int = 16  # episodes at a time in one process
    max_agent_turns: int = 60  # assistant turns; a task's own limit wins if smaller
    max_seconds: float = 3_600.0
    turn_seconds: float = 900.0  # one turn of a checkpoint, attempts and waits included; an endpoint has its own
    user: EndpointConfig = field(default_factory=EndpointConfig)
    judge: EndpointConfig = field(default_factory=lambda: EndpointConfig(kind="none"))
    sandbox: SandboxConfig = field(default_factory=SandboxConfig)
    grade: GradeConfig = field(default_factory=GradeConfig)


@dataclass(kw_only=True)
class ProbeConfig:
    trials: int = 8  # n per task
    stop: str = "kept"  # kept: once the decision is certain | band: once the band is | bounded | fixed: always n
    bounded_error: float = 0.02  # of the `bounded` rule: largest share of decisions that may differ
    population: list[float] = field(default_factory=lambda: [0.713, 0.682])  # Beta spread of tasks' success rates
    max_attempts: int = 3  # runs of one trial before a void is left standing
    max_void_share: float = 0.5  # of a shard's episodes; above it the shard stops


@dataclass(kw_only=True)
class BandConfig:
    """Half-open success-rate bands in ascending order; `bounds` are their upper ends."""

    names: list[str] = field(
        default_factory=lambda: ["rarely", "difficult", "intermediate", "frequently", "nearly_always"]
    )
    bounds: list[float] = field(default_factory=lambda: [0.08, 0.40, 0.60, 0.90, 1.0])
    keep: list[str] = field(default_factory=lambda: ["difficult", "intermediate", "frequently"])


@dataclass(kw_only=True)
class FieldsConfig:
    """Dotted names of the fields of JSONL written elsewhere: one trial a row, or counts a row if `passes` is given."""

    uid: str = "uid"
    success: str = "success"  # true/false, or a reward in [0, 1] that passes only at 1
    system_error: str = "system_error"  # true or a text: the trial is void; may be absent from rows
    domain: str = "domain"  # may be absent from rows
    policy: str = "policy"  # may be absent from rows
    trial: str = ""  # trial index; if given, a trial that stands there twice is refused
    passes: str = ""  # count rows: passes and valid trials of one task
    trials: str = ""


@dataclass(kw_only=True)
class ReferenceConfig:
    """A stronger model must have solved a task at least `passes` of `trials` times."""

    inputs: list[str] = field(default_factory=list)  # its run directories or JSONL; empty: no gate
    passes: int = 1
    trials: int = 4


@dataclass(kw_only=True)
class CurateConfig:
    bands: BandConfig = field(default_factory=BandConfig)
    fields: FieldsConfig = field(default_factory=FieldsConfig)
    reference: ReferenceConfig = field(default_factory=ReferenceConfig)
    min_valid_trials: int = 1  # of a task whose decision is not certain
    exclude: list[str] = field(default_factory=list)  # files with `uids:`
    test_share: float = 0.0  # of a stratified split; 0: everything selected is for training
    near_duplicate_threshold: float = 0.85  # MinHash Jaccard over word shingles
    seed: int = 42


@dataclass(kw_only=True)
class TrainConfig:
    steps: int = 50
    group_size: int = 8
    groups_per_step: int = 18
    learning_rate: float = 1e-6
    weight_decay: float = 0.0
    clip_ratio_low: float = 0.2  # both without effect while a batch has one update: the ratio is 1
    clip_ratio_high: float = 0.2
    normalize_by_std: bool = True  # divide advantages by the group's standard deviation; False: centre only
    lora_rank: int = 0  # 0: full parameters
    freeze_embeddings: bool = False  # for a small policy on few tasks, which learns their identifiers by heart
    save_every: int = 5
    micro_batch_per_gpu: int = 1
    nodes: int = 3
    gpus_per_node: int = 8
    ulysses: int = 4
    rollout_tensor_parallel: int = 4
    rollout_memory_utilization: float = 0.70
    rollout_max_num_batched_tokens: int = 32_768
    agent_workers: int = 8  # processes that run episodes, spread over the nodes that have devices
    param_offload: bool = True
    optimizer_offload: bool = True
    gradient_checkpointing: bool = True
    remove_padding: bool = True
    fused_kernels: bool = True
    device: str = "cuda"  # cuda | cpu (the practice platform)
    max_refill_rounds: int = 4  # rounds of oversampling to replace groups without variance
    max_attempts: int = 3  # runs of one episode before its group is replaced as void
    max_void_share: float = 0.25  # of a step's episodes; above it the run stops
    watchdog_minutes: float = 90.0  # without a finished episode or step: stacks into the log, then the run ends
    max_logprob_difference: float = 0.15  # mean |sampler - trainer| in nats, at the start and per step; above: stop
    device_memory_gb: float = 0.0  # of one device, for the memory budget; 0: not checked
    host_memory_gb: float = 0.0  # of one node; 0: not checked
    trackers: list[str] = field(default_factory=list)  # tensorboard, wandb; metrics.jsonl is always written
    shuffle_rewards: bool = False  # the control: rewards permuted within each group, from which nothing can be learned
    seed: int = 42
    verl: dict[str, Any] = field(default_factory=dict)  # raw Hydra overrides for Verl, applied last


@dataclass(kw_only=True)
class PolicyEndpointConfig:
    """An API model to evaluate. It samples with `sampling`; `extra` adds request parameters, or takes one away with
    null. The API key is read from the environment variable named here, never from a file of ours."""

    base_url: str = ""
    model: str = ""
    api_key_env: str = ""
    timeout_seconds: float = 600.0
    max_retries: int = 6
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(kw_only=True)
class EvaluateConfig:
    trials: int = 20
    max_model_len: int = 262_144
    max_attempts: int = 3  # runs of one trial before a void is left standing
    max_void_share: float = 0.5  # of a shard's episodes; above it the shard stops
    endpoints: dict[str, PolicyEndpointConfig] = field(default_factory=dict)  # by label, for --label


@dataclass(kw_only=True)
class Config:
    """Everything one campaign needs, resolved."""

    name: str = "???"
    run_dir: str = "???"
    tasks: TasksConfig = field(default_factory=TasksConfig)
    policy: PolicyConfig = field(default_factory=PolicyConfig)
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    serve: ServeConfig = field(default_factory=ServeConfig)
    simulator: SimulatorConfig = field(default_factory=SimulatorConfig)
    episode: EpisodeConfig = field(default_factory=EpisodeConfig)
    probe: ProbeConfig = field(default_factory=ProbeConfig)
    curate: CurateConfig = field(default_factory=CurateConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    evaluate: EvaluateConfig = field(default_factory=EvaluateConfig)
