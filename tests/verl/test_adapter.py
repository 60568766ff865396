"""A low-rank adapter through the real Verl: trained, resumed with vLLM as its sampler, and merged by Verl's merger."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stateward.training import merge, tensors, verify
from stateward.training.figures import read_lines
from stateward.training.paths import TrainPaths

pytestmark = [pytest.mark.engines, pytest.mark.timeout(900)]

torch = pytest.importorskip("torch")
peft = pytest.importorskip("peft")
pytest.importorskip("verl")

RANK = 4
#: Adam moves every weight of B by nearly this much in the first step, so that the adapter is heard at once.
LEARNING_RATE = 0.05
PROMPT = [1, 5, *range(8, 40)]


def adapted(model: Path, checkpoint: Path) -> Any:
    """The base with the adapter of a checkpoint's shard, put together by peft alone."""
    from transformers import AutoModelForCausalLM

    base = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    settings = peft.LoraConfig(r=RANK, lora_alpha=RANK, target_modules="all-linear", task_type="CAUSAL_LM")
    whole = peft.get_peft_model(base, settings)
    shard = torch.load(verify.shard_files(checkpoint, 1)[0], weights_only=False)
    whole.load_state_dict({name: torch.as_tensor(getattr(t, "_local_tensor", t)) for name, t in shard.items()})
    return whole


def logprobs(model: Any) -> Any:
    """Of every token of `PROMPT` after its first."""
    ids = torch.tensor([PROMPT])
    with torch.inference_mode():
        return torch.log_softmax(model(ids).logits.float(), -1)[0, :-1].gather(1, ids[0, 1:, None])


def test_an_adapter_is_trained_resumed_and_merged(small_runs: Any, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    paths, model = TrainPaths.of(tmp_path), small_runs.model
    settings: dict[str, Any] = {"lora_rank": RANK, "learning_rate": LEARNING_RATE}
    assert small_runs.train(tmp_path, steps=1, **settings).steps == 1
    first = adapted(model, paths.checkpoints / "global_step_1")
    base = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    heard = (logprobs(first) - logprobs(base)).abs().mean().item()

    small_runs.engine = "vllm"
    result = small_runs.train(tmp_path, steps=2, **settings)
    assert (result.steps, result.resumed_from) == (2, 1)
    lines = read_lines(paths.metrics)
    assert [line["step"] for line in lines] == [1, 2]
    assert all(line["host_memory_gb"] > 0 and "device_memory_gb" in line for line in lines), "Verl named them otherwise"
    # Before its first step the resumed run compared vLLM, which got the adapter of the checkpoint, with the trainer.
    told = [
        text for text in (paths.logs / "driver.log").read_text().splitlines() if "engines and trainer agree" in text
    ]
    line = told[-1]
    found = json.loads(line.partition(": ")[2])["mean_absolute"]
    print(f"the adapter moves log-probs by {heard:.3f} nats on average; vLLM and the trainer differ by {found:.3f}")
    assert found < 0.05
    assert heard > 5 * found

    merged = merge.merge(small_runs.config(tmp_path, steps=2, **settings), tmp_path, model=model)
    manifest = json.loads((merged / "manifest.json").read_text())
    assert manifest["tensors"]["changed"] == 14  # 7 linear layers in each of 2 layers
    expected = adapted(model, result.checkpoint).merge_and_unload().state_dict()
    for name, tensor in tensors._tensors(tensors.weight_files(merged), sorted(tensors.weight_files(merged))):
        torch.testing.assert_close(tensor.float(), expected[name].float(), rtol=1e-2, atol=1e-3)
    assert not (merged / "lora_adapter").exists()
