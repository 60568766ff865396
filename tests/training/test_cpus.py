"""CPUs that Ray must have, and where too few are told."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from stateward.campaign.by_hand import sized
from stateward.cluster.profile import load_profile
from stateward.config import Config, load_config
from stateward.errors import UserError
from stateward.training import launch
from stateward.training.cpus import check_nodes, needed_cpus, storage_units
from stateward.training.plan import plan_training

ROOT = Path(__file__).parents[2]


def config_of(name: str, *overrides: str) -> Config:
    return load_config(ROOT / "configs" / f"{name}.yaml", overrides)


def test_what_verl_reserves_is_counted() -> None:
    # Four nodes: two of the store's eight parts on each, the queue's controller somewhere, hosts and engines starting.
    assert needed_cpus(devices=8, units=8, nodes=4) == 3 * 8 + 2 + 1 + 2
    assert needed_cpus(devices=0, units=8, nodes=4) == 2 + 1
    key = "transfer_queue.backend.SimpleStorage.num_data_storage_units"
    assert [storage_units(config_of("practice")), storage_units(config_of("q38_full"))] == [1, 8]
    assert storage_units(config_of("q38_full", f"train.verl={{{key!r}: 4}}")) == 4


@pytest.mark.parametrize(("role", "cpus"), [("train", 24), ("train", 28), ("service", 2)])
def test_a_profile_with_too_few_is_refused_before_anything_is_submitted(role: str, cpus: int) -> None:
    profile = load_profile(ROOT / "configs" / "cluster" / "h100.yaml")
    config = config_of("q38_full")
    assert sized(config, profile).train.nodes == 3
    getattr(profile, role).cpus = cpus
    with pytest.raises(UserError, match=rf"{role}\.cpus={cpus}, and Ray needs (29|3) there"):
        sized(config, profile)


def test_the_run_looks_at_the_nodes_that_it_was_given() -> None:
    def node(cpus: int, devices: int, *, alive: bool = True) -> dict[str, Any]:
        return {
            "Alive": alive,
            "NodeManagerAddress": f"10.0.0.{cpus}",
            "Resources": {"CPU": float(cpus), "GPU": float(devices)},
        }

    check_nodes([node(4, 0), node(29, 8), node(96, 8), node(29, 8), node(1, 8, alive=False)], units=8)
    with pytest.raises(UserError, match=r"24 CPUs on 10\.0\.0\.24 with 8 devices, and needs 29"):
        check_nodes([node(4, 0), node(24, 8), node(96, 8), node(29, 8)], units=8)


@pytest.mark.parametrize(("name", "cpus"), [("practice", 7), ("q36_27b_lora", 35)])
def test_a_private_ray_has_as_many(name: str, cpus: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[int] = []
    monkeypatch.setattr(launch, "private_ray", lambda **more: asked.append(more["cpus"]) or nullcontext())
    launch.local_ray(plan_training(config_of(name), tmp_path, Path("/m")))
    assert asked == [cpus]
