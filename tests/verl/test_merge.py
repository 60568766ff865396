"""From sharded checkpoints, as Verl writes them, to a folder that loads and generates."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from stateward.config import load_config
from stateward.errors import SystemFault, UserError
from stateward.training import merge, tensors, verify
from stateward.training.paths import TrainPaths
from stateward.training.plan import CPU_ENVIRONMENT

pytestmark = pytest.mark.engines

torch = pytest.importorskip("torch")
peft = pytest.importorskip("peft")
pytest.importorskip("verl")

HERE = Path(__file__).parent
PRACTICE = Path(__file__).parents[2] / "configs" / "practice.yaml"


def tiny() -> Any:
    spec = importlib.util.spec_from_file_location("tiny", HERE / "tiny.py")
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(name="base", scope="module")
def _base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    written: Path = tiny().write_model(tmp_path_factory.mktemp("model") / "base")
    return written


@pytest.fixture(name="seeing", scope="module")
def _seeing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A base with a vision tower, and tensors in fp32."""
    written: Path = tiny().write_multimodal(tmp_path_factory.mktemp("model") / "seeing")
    return written


@pytest.fixture(scope="module")
def checkpoints(seeing: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run directories ``full`` and ``adapter``, of two ranks each."""
    root = tmp_path_factory.mktemp("runs")
    env = {**os.environ, **CPU_ENVIRONMENT, "VERL_USE_EXTERNAL_MODULES": "stateward.training.verl_plugin"}
    command = [sys.executable, str(HERE / "sharded.py"), str(seeing), str(root)]
    ranks = [
        subprocess.Popen([*command, str(rank), "2"], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        for rank in range(2)
    ]
    told = [rank.communicate()[0].decode() for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], "\n".join(told)
    for kind in ("full", "adapter"):
        verify.mark_verified(checkpoint(root / kind), 2)
    return root


def checkpoint(run_dir: Path) -> Path:
    return TrainPaths.of(run_dir).checkpoints / "global_step_1"


def trained(run_dir: Path) -> Any:
    """What the ranks held before they divided it."""
    return torch.load(checkpoint(run_dir) / "whole.pt")


def weights(model: Path) -> dict[str, Any]:
    from safetensors.torch import load_file

    return {name: t for path in model.glob("*.safetensors") for name, t in load_file(path).items()}


def same_bytes(one: Any, other: Any) -> bool:
    return bool(one.dtype == other.dtype and torch.equal(one.view(torch.uint8), other.view(torch.uint8)))


def test_the_adapter_of_a_policy_that_can_see(seeing: Path, checkpoints: Path) -> None:
    """Against peft, which adds it by itself on the class that Verl trains."""
    from transformers import AutoModelForImageTextToText

    run_dir = checkpoints / "adapter"
    config = load_config(PRACTICE, ["train.steps=1", "train.lora_rank=4"])
    merged = merge.merge(config, run_dir, model=seeing)

    base = AutoModelForImageTextToText.from_pretrained(seeing, dtype=torch.float32)
    settings = peft.LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", task_type="CAUSAL_LM")
    whole: Any = peft.get_peft_model(base, settings)
    whole.load_state_dict(trained(run_dir))
    expected = whole.merge_and_unload().state_dict()
    old, new = weights(seeing), weights(merged)
    assert new.keys() == old.keys() == expected.keys() | {"mtp.fc.weight"}
    for name in expected:
        assert same_bytes(new[name], expected[name].to(old[name].dtype)), name
    changed = {name for name in new if not same_bytes(new[name], old[name])}
    layers = {
        name.split(".lora_A")[0].removeprefix("base_model.model.") for name in trained(run_dir) if "lora_A" in name
    }
    assert changed == {f"{name}.weight" for name in layers if ".visual." not in name}
    assert len(changed) == 31  # 5 of 3 gated delta nets, 4 of an attention, 3 of 4 layers besides
    assert old["model.language_model.layers.0.linear_attn.A_log"].dtype == torch.float32

    manifest = json.loads((merged / "manifest.json").read_text())
    assert manifest["tensors"]["changed"] == len(changed)
    assert manifest["tensors"]["carried_over"] == ["mtp.fc.weight"]
    for name in ("config.json", "generation_config.json", "tokenizer.json", "model.safetensors.index.json"):
        assert (merged / name).read_bytes() == (seeing / name).read_bytes()
    assert (merged / "DONE").is_file()


def test_every_tensor_keeps_the_precision_of_the_base(seeing: Path, checkpoints: Path) -> None:
    """All parameters trained, merged by Verl's merger: fp32 values come from the shards, not from their bf16 copies."""
    run_dir = checkpoints / "full"
    merged = merge.merge(load_config(PRACTICE, ["train.steps=1", "train.learning_rate=2e-4"]), run_dir, model=seeing)
    old, new, expected = weights(seeing), weights(merged), trained(run_dir)
    assert new.keys() == old.keys()
    for name in expected:
        assert same_bytes(new[name], expected[name].to(old[name].dtype)), name
    inexact = [name for name, t in new.items() if t.dtype == torch.float32 and not torch.equal(t, t.bfloat16().float())]
    assert len(inexact) == 6  # A_log and norm of 3 gated delta nets
    assert same_bytes(new["mtp.fc.weight"], old["mtp.fc.weight"])


def test_an_adapter_of_another_base_is_refused(base: Path, checkpoints: Path, tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    shutil.copytree(checkpoints / "adapter", run_dir, ignore=shutil.ignore_patterns("merged"))
    config = load_config(PRACTICE, ["train.steps=1", "train.lora_rank=4"])
    with pytest.raises(UserError, match=r"model\.language_model\.layers\.0\..* is not in the base"):
        merge.merge(config, run_dir, model=base)
    assert not (run_dir / "merged" / "DONE").exists()


def test_a_vision_tower_that_is_missing_is_refused(seeing: Path, tmp_path: Path) -> None:
    from safetensors.torch import save_file

    broken = tmp_path / "broken"
    shutil.copytree(seeing, broken, ignore=shutil.ignore_patterns("*.safetensors*"))
    kept = {name: tensor for name, tensor in weights(seeing).items() if ".visual.merger." not in name}
    save_file(kept, broken / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(SystemFault, match=r"missing or mismatched weights: .*visual"):
        merge.generate_one(broken)


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
