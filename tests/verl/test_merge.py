"""Merging, but for Verl's own merger (test_adapter.py and the campaign run it): adapters, loading, generating."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path
from typing import Any

import pytest

from stateward.config import load_config
from stateward.errors import SystemFault, UserError
from stateward.training import merge, tensors, verify
from stateward.training.paths import TrainPaths

pytestmark = pytest.mark.engines

torch = pytest.importorskip("torch")
peft = pytest.importorskip("peft")

PRACTICE = Path(__file__).parents[2] / "configs" / "practice.yaml"


@pytest.fixture(name="base", scope="module")
def _base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    spec = importlib.util.spec_from_file_location("tiny", Path(__file__).with_name("tiny.py"))
    assert spec is not None
    assert spec.loader is not None
    tiny: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tiny)
    written: Path = tiny.write_model(tmp_path_factory.mktemp("model") / "base")
    return written


def weights(model: Path) -> dict[str, Any]:
    from safetensors.torch import load_file

    return {name: t for path in model.glob("*.safetensors") for name, t in load_file(path).items()}


def test_an_adapter_is_added_into_the_weights(base: Path, tmp_path: Path) -> None:
    """As Verl's merger leaves them: the base's weights, and the adapter in a folder beside them."""
    from transformers import AutoModelForCausalLM

    work = tmp_path / "work"
    shutil.copytree(base, work)
    rank, alpha = 4, 8
    settings = peft.LoraConfig(r=rank, lora_alpha=alpha, target_modules="all-linear", task_type="CAUSAL_LM")
    adapted = peft.get_peft_model(AutoModelForCausalLM.from_pretrained(base, dtype=torch.bfloat16), settings)
    torch.manual_seed(3)
    for name, parameter in adapted.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.05)
    adapted.save_pretrained(work / "lora_adapter")
    parts = weights(work / "lora_adapter")
    merge.apply_adapter(work, work / "lora_adapter")
    shutil.rmtree(work / "lora_adapter")
    old, new = weights(base), weights(work)
    assert old.keys() == new.keys()
    pairs = {name for name in parts if "lora_A" in name}
    assert pairs
    for name in pairs:
        target = name.removeprefix("base_model.model.").replace("lora_A.weight", "weight")
        product = parts[name.replace("lora_A", "lora_B")].float() @ parts[name].float() * (alpha / rank)
        torch.testing.assert_close(new[target].float(), old[target].float() + product, rtol=2e-2, atol=2e-3)
    found = tensors.compare(base, work)
    assert found.changed == len(pairs)
    assert "model.embed_tokens.weight" in found.unchanged
    ids = merge.generate_one(work)
    assert ids[-1] < 64


def test_a_folder_that_loads_with_missing_weights_is_refused(base: Path, tmp_path: Path) -> None:
    from safetensors.torch import save_file

    broken = tmp_path / "broken"
    shutil.copytree(base, broken)
    kept = weights(base)
    kept.pop("model.layers.1.mlp.up_proj.weight")
    save_file(kept, broken / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(SystemFault, match=r"missing or mismatched weights: .*up_proj"):
        merge.generate_one(broken)


def test_only_the_last_steps_verified_checkpoint_is_merged(tmp_path: Path) -> None:
    config = load_config(PRACTICE, ["train.steps=4"])
    with pytest.raises(UserError, match="stands at step 0 of 4"):
        merge.merge(config, tmp_path, model=tmp_path)
    root = TrainPaths.of(tmp_path).checkpoints
    for path in verify.shard_files(root / "global_step_4", 1):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
    with pytest.raises(UserError, match="stands at step 0 of 4"):
        merge.merge(config, tmp_path, model=tmp_path)


def test_an_adapter_or_another_optimizer_has_no_reach() -> None:
    config = load_config(PRACTICE)
    assert merge._reach(config) == tensors.adam_reach(config.train.learning_rate, 0.0, config.train.steps)
    config.train.verl = {"actor_rollout_ref.actor.optim.betas": [0.5, 0.9]}
    assert merge._reach(config) == tensors.Reach()
    config.train.verl, config.train.lora_rank = {}, 8
    assert merge._reach(config) == tensors.Reach()
