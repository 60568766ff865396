"""What Verl is told: golden files, the installed Verl's own schema, and a dry run that imports nothing heavy."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from stateward.config import Config, load_config
from stateward.errors import UserError
from stateward.training import overrides
from stateward.training.overrides import Override
from stateward.training.paths import TrainPaths
from stateward.training.plan import plan_training, worker_environment

PATH = os.environ["PATH"]
ROOT = Path(__file__).parents[2]
GOLDEN = Path(__file__).parent / "golden"
GOLDEN_CONFIGS = ["q38_full", "q36_27b_lora", "q35_9b_lora"]
CONFIGS = [*GOLDEN_CONFIGS, "practice"]  # practice is tuned; its values are not frozen


def config_of(name: str, *overrides: str) -> Config:
    return load_config(ROOT / "configs" / f"{name}.yaml", overrides)


def rendered(config: Config) -> list[str]:
    plan = plan_training(config, "/golden", Path("/models/base"))
    return [override.render() for override in plan.overrides]


@pytest.mark.parametrize("name", GOLDEN_CONFIGS)
def test_golden(name: str) -> None:
    path = GOLDEN / f"{name}.txt"
    text = "\n".join(rendered(config_of(name))) + "\n"
    assert path.read_text() == text, f"to accept: python {__file__} (then read the diff)"


def test_every_override_has_a_reason_and_stands_once() -> None:
    plan = plan_training(config_of("q38_full"), "/golden", Path("/m"))
    keys = [override.key.lstrip("+") for override in plan.overrides]
    assert len(keys) == len(set(keys))
    assert all(override.reason for override in plan.overrides)


def verl_schema() -> Any:
    """Verl's default configuration, composed from its YAML files without importing Verl."""
    from hydra import compose, initialize_config_dir

    spec = importlib.util.find_spec("verl")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("Verl is not installed")
    folder = Path(spec.submodule_search_locations[0]) / "trainer" / "config"
    with initialize_config_dir(str(folder), version_base=None):
        yield lambda overrides: compose("ppo_trainer", overrides=overrides)


@pytest.fixture(name="compose")
def _compose() -> Any:
    yield from verl_schema()


@pytest.mark.parametrize("name", CONFIGS)
def test_the_installed_verl_takes_every_override(name: str, compose: Any) -> None:
    from omegaconf import OmegaConf

    plan = plan_training(config_of(name), "/golden", Path("/models/base"))
    config = compose([override.render() for override in plan.overrides])
    for override in plan.overrides:
        value = OmegaConf.select(config, override.key.lstrip("+"))
        value = OmegaConf.to_container(value) if OmegaConf.is_config(value) else value
        assert value == override.value, override.key


def test_a_key_that_verl_does_not_have_is_refused(compose: Any) -> None:
    from hydra.errors import ConfigCompositionException

    with pytest.raises(ConfigCompositionException):
        compose([*rendered(config_of("practice")), "trainer.no_such_key=1"])


def test_raw_overrides_come_last_and_replace_ours() -> None:
    config = config_of("practice")
    config.train.verl = {"actor_rollout_ref.actor.optim.lr": 0.5, "+trainer.note": "it's new"}
    lines = rendered(config)
    assert lines[-2:] == ["actor_rollout_ref.actor.optim.lr=0.5", "+trainer.note='it\\'s new'"]
    assert sum(line.startswith("actor_rollout_ref.actor.optim.lr=") for line in lines) == 1


@pytest.mark.parametrize(
    ("key", "value", "named"),
    [
        ("actor_rollout_ref.rollout.n", 4, "rollout.n"),
        ("++actor_rollout_ref.rollout.n", 4, "rollout.n"),
        ("~trainer.checkpoint_callback_class", None, "checkpoint_callback_class"),
        ("actor_rollout_ref", {"rollout": {"n": 4, "seed": 1}}, "rollout.n"),
        ("+trainer.max_actor_ckpt_to_keep", 1, "max_actor_ckpt_to_keep"),
        ("trainer.remove_previous_ckpt_in_save", True, "remove_previous_ckpt_in_save"),
        ("trainer.resume_mode", "disable", "resume_mode"),
        ("trainer.save_freq", 1, "save_freq"),
        ("data.train_batch_size", 7, "train_batch_size"),
        ("algorithm.rollout_correction.bypass_mode", True, "their difference is 0 whatever is wrong"),
        ("+algorithm.rollout_correction", {"bypass_mode": True}, "bypass_mode"),
        ("actor_rollout_ref.rollout.calculate_log_probs", False, "calculate_log_probs"),
        ("actor_rollout_ref.actor.strategy", "fsdp", "actor.strategy"),
        ("actor_rollout_ref.model.fused_kernel_options", {"impl_backend": "triton"}, "impl_backend"),
    ],
)
def test_raw_overrides_may_not_touch_what_this_suite_depends_on(key: str, value: Any, named: str) -> None:
    config = config_of("practice")
    config.train.verl = {key: value}
    with pytest.raises(UserError, match=re.escape(named)):
        rendered(config)


def test_every_key_that_may_not_be_touched_is_one_of_verls(compose: Any) -> None:
    from omegaconf import OmegaConf

    composed = compose(rendered(config_of("practice")))
    missing = object()
    unknown = {key for key in overrides._OURS if OmegaConf.select(composed, key, default=missing) is missing}
    assert unknown == {"trainer.remove_previous_ckpt_in_save"}  # deprecated; Verl reads it where it was added


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        3,
        1e-6,
        0.0,
        "",
        "plain/path-1.x",
        "a b",
        "it's",
        "x=1,y={z}",
        "true",
        "1e5",
        "$x",
        [1, "a,b"],
        {"a": [True]},
    ],
)
def test_values_survive_hydras_grammar(value: Any) -> None:
    from hydra.core.override_parser.overrides_parser import OverridesParser

    parsed = OverridesParser.create().parse_override(Override("+key", value, "").render())
    found = parsed.value()
    assert found == value
    assert type(found) is type(value)


def test_logprobs_are_raw_only_where_that_can_be_compared() -> None:
    key = "actor_rollout_ref.rollout.logprobs_mode="
    assert any(line.startswith(key) for line in rendered(config_of("practice")))
    assert not any(line.startswith(key) for line in rendered(config_of("practice", "sampling.temperature=0.7")))


def test_prompts_are_not_cut_into_chunks_on_processor_cores() -> None:
    key = "actor_rollout_ref.rollout.enable_chunked_prefill="
    assert [line for line in rendered(config_of("practice")) if line.startswith(key)] == [key + "false"]
    assert [line for line in rendered(config_of("q38_full")) if line.startswith(key)] == [key + "true"]
    with pytest.raises(UserError, match=r"is less than policy\.max_model_len"):
        rendered(config_of("practice", "train.rollout_max_num_batched_tokens=512"))


def test_what_a_dry_run_prints_is_bash_that_gives_verl_these_very_arguments() -> None:
    config = config_of("q38_full", "name=a name; with $signs")
    plan = plan_training(config, "/a b/run", Path("/models/it's"))
    *before, launch = plan.lines()
    script = [*before, launch.replace("python -m verl", "printf '%s\\n' python -m verl"), "env"]
    done = subprocess.run(["bash", "-eu"], input="\n".join(script), capture_output=True, text=True, env={"PATH": PATH})
    assert done.returncode == 0, done.stderr
    printed = done.stdout.splitlines()
    assert printed[: len(plan.command())] == plan.command()
    for name, value in worker_environment(config, plan.paths).items():
        assert f"{name}={value}" in printed


def test_an_engine_may_take_as_long_to_start_as_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("VLLM_ENGINE_READY_TIMEOUT_S", "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS")
    for name in names:
        monkeypatch.delenv(name, raising=False)
    config = config_of("practice", "serve.startup_seconds=1234.5")
    environment = worker_environment(config, TrainPaths.of(tmp_path))
    assert [environment[name] for name in names] == ["1235", "1235"]
    monkeypatch.setenv(names[0], "99")
    assert worker_environment(config, TrainPaths.of(tmp_path))[names[0]] == "99"  # a shell's own wins


def write_golden() -> None:
    GOLDEN.mkdir(exist_ok=True)
    for name in GOLDEN_CONFIGS:
        (GOLDEN / f"{name}.txt").write_text("\n".join(rendered(config_of(name))) + "\n")


if __name__ == "__main__":
    write_golden()
