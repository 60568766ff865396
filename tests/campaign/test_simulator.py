"""`kind: simulator` through the stages: what is asked before a submission, who serves, and what a comparison sees."""

from __future__ import annotations

import json
import os
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from stateward.campaign.by_hand import training_script
from stateward.campaign.link import Link
from stateward.campaign.mounts import mounts
from stateward.campaign.simulator import require_sample_room, with_simulator
from stateward.campaign.submission import table
from stateward.cluster.profile import ClusterProfile, Role, load_profile
from stateward.cluster.services import simulator
from stateward.config import Config, EndpointConfig, SimulatorConfig, load_config
from stateward.config.simulator import SIMULATOR, SimulatorAddress, simulator_model, write_address
from stateward.episode import settings_of
from stateward.errors import UserError
from stateward.policy.samplers.chat import ChatSampler
from stateward.practice.policy import ensure_policy

ROOT = Path(__file__).parents[2]


@pytest.fixture
def model() -> str:
    return str(ensure_policy())


def configured(model: str, *overrides: str, file: str = "practice") -> Config:
    mine = [f"simulator.model={json.dumps(model)}", "simulator.tensor_parallel=4", "episode.judge.kind=simulator"]
    return load_config(ROOT / "configs" / f"{file}.yaml", [*mine, *overrides])


@pytest.fixture
def gpus(model: str) -> Config:
    """A configuration for devices; its policy is served on two."""
    return configured(model, "serve.tensor_parallel=2", f"policy.model={json.dumps(model)}", file="q38_full")


@pytest.fixture
def profile() -> ClusterProfile:
    found = load_profile(ROOT / "configs" / "cluster" / "h100.yaml")
    found.simulator = Role(partition="gpu", nodes=2, gpus=4)
    return found


def test_only_a_job_that_wants_it_has_the_component(profile: ClusterProfile, gpus: Config) -> None:
    kept = with_simulator(gpus, profile).simulator
    assert kept is not None
    assert (kept.nodes, kept.gpus) == (1, 4)
    gpus.episode.judge.kind = "none"
    assert with_simulator(gpus, profile).simulator is None


def test_the_submitted_script_has_it_with_time_to_load(profile: ClusterProfile, gpus: Config) -> None:
    gpus.simulator.startup_seconds = 900.5
    script = training_script("configs/q38_full.yaml", gpus, profile, ["simulator.startup_seconds=900.5"])
    assert script.count("#SBATCH hetjob") == 2
    assert "--deadline 1501 " in script
    node = script[script.index("simulator_node") :]
    assert "--rank 4" in node
    assert node.index("simulator.startup_seconds=900.5") < node.index('"$@"')


def test_what_cannot_be_served_is_refused_before_it_is_submitted(profile: ClusterProfile, gpus: Config) -> None:
    gpus.simulator.tensor_parallel = 8
    with pytest.raises(UserError, match="role `simulator` has 4 GPUs"):
        with_simulator(gpus, profile)
    with pytest.raises(UserError, match="role `sample` has 8 GPUs, and an array task needs 10"):
        require_sample_room(gpus, 2, profile)
    gpus.simulator.tensor_parallel = 4
    require_sample_room(gpus, 2, profile)
    profile.simulator = None
    with pytest.raises(UserError, match="has no role `simulator`"):
        with_simulator(gpus, profile)
    gpus.simulator.model = "/nowhere"
    with pytest.raises(UserError, match=r"simulator\.model='/nowhere' is not a checkpoint"):
        with_simulator(gpus, profile)


def test_the_plan_counts_its_devices(profile: ClusterProfile, gpus: Config) -> None:
    hours = Role(partition="gpu", nodes=3, gpus=8, time="2:00:00")
    link = Link(name="train", kind="het", role=hours, done=False, beside=with_simulator(gpus, profile).simulator)
    row = table([link], profile)[1]
    assert row.split()[-7:] == ["3", "×", "8", "GPUs", "+", "4", "56.0"]


def test_its_model_is_mounted_in_an_image(model: str, tmp_path: Path) -> None:
    copy = tmp_path / "model"
    copy.mkdir()
    (copy / "config.json").write_text("{}")
    assert copy in mounts(configured(str(copy)), "configs/practice.yaml")


def test_the_model_and_its_settings_are_conditions_of_a_run(model: str, tmp_path: Path) -> None:
    config = configured(model)
    settings = settings_of(config, max_model_len=8)
    assert set(settings["simulator"]) == {"model", "max_model_len", "dtype", "tensor_parallel", "extra"}
    # By content, not by place; and nothing is added where nobody asks for it.
    (tmp_path / "link").symlink_to(model)
    assert settings_of(configured(str(tmp_path / "link")), max_model_len=8) == settings
    assert settings_of(configured(model, "simulator.dtype=float32"), max_model_len=8) != settings
    plain = load_config(ROOT / "configs" / "practice.yaml")
    assert "simulator" not in settings_of(plain, max_model_len=8)


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What vLLM was started with."""
    calls: list[dict[str, Any]] = []

    @contextmanager
    def serve(model: Path, config: Any, **options: Any) -> Any:
        calls.append({"model": model, **options})
        yield SimpleNamespace(base_url="http://127.0.0.1:9/v1", api_key="k")

    monkeypatch.setattr(simulator, "serve", serve)
    monkeypatch.delenv(SIMULATOR, raising=False)
    return calls


def test_a_stage_serves_it_beside_the_policy(
    served: list[dict[str, Any]], gpus: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(simulator, "is_cpu_build", lambda: False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,3,4,5,6,7")
    with simulator.simulator_here(gpus, beside=2, log=tmp_path / "log"):
        assert served[0]["environment"] == {"CUDA_VISIBLE_DEVICES": "4,5,6,7"}
        asked = ChatSampler(gpus.episode.judge, kind="judge")
        assert (asked.name, asked.base_url) == ("simulator", "http://127.0.0.1:9/v1")
    assert SIMULATOR not in os.environ
    with (
        pytest.raises(UserError, match="6 devices here, and 3 of the policy and 4 of the simulator"),
        simulator.simulator_here(gpus, beside=3, log=tmp_path / "log"),
    ):
        pass


def test_nothing_is_served_where_the_job_does_or_nobody_asks(
    served: list[dict[str, Any]], gpus: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = tmp_path / "start" / "simulator.json"
    write_address(address, SimulatorAddress(base_url="http://10.0.0.7:1/v1", api_key="k"))
    monkeypatch.setenv(SIMULATOR, str(address))
    with simulator.simulator_here(gpus, beside=2, log=tmp_path / "log"):
        assert ChatSampler(EndpointConfig(kind="simulator")).base_url == "http://10.0.0.7:1/v1"
    monkeypatch.delenv(SIMULATOR)
    gpus.episode.judge.kind = "none"
    with simulator.simulator_here(gpus, beside=2, log=tmp_path / "log"):
        assert SIMULATOR not in os.environ
    assert served == []


def test_a_model_that_thinks_needs_a_reasoning_parser(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "chat_template.jinja").write_text("{{ '<think>' }}")
    with pytest.raises(UserError, match="names no reasoning parser"):
        simulator_model(SimulatorConfig(model=str(tmp_path)))
    parsed: list[dict[str, Any]] = [
        {"reasoning-parser": "qwen3"},
        {"default-chat-template-kwargs": {"enable_thinking": False}},
    ]
    for extra in parsed:
        assert simulator_model(SimulatorConfig(model=str(tmp_path), extra=extra)) == tmp_path
