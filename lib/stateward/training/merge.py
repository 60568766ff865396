"""From the last verified checkpoint to a folder in Hugging Face format that can be served."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from stateward.cluster.services.vllm_metadata import metadata_environment
from stateward.config import Config, config_to_dict
from stateward.errors import SystemFault, UserError
from stateward.store import Stage
from stateward.training import tensors, verify
from stateward.training.adapter import add_adapter, is_adapter, read_adapter
from stateward.training.paths import TrainPaths
from stateward.training.plan import worker_environment
from stateward.training.shards import Shards

#: What makes a checkpoint more than weights: taken from the base as it is, since training changes none of it.
_CARRIED = (
    "config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    "chat_template.json",
    "generation_config.json",
    "preprocessor_config.json",
    "video_preprocessor_config.json",
    "processor_config.json",
)


def merge(config: Config, run_dir: Path | str, *, model: Path) -> Path:
    """Merge, compare with the base `model`, load, generate; then mark ``run_dir/merged`` as done and return it.

    Does nothing if it is done for the same checkpoint and base.

    Raises:
        UserError: training has not reached its last step, or an adapter does not belong to `model`.
        SystemFault: the merged checkpoint is not what it should be; nothing is marked.
    """
    paths = TrainPaths.of(run_dir)
    checkpoint = _trained(config, paths)
    stage = Stage(paths.run_dir, "merged")
    inputs = {
        "checkpoint": str(checkpoint.relative_to(paths.run_dir)),
        "base": str(model),
        "shards": _sizes(checkpoint),
    }
    if stage.is_done(inputs):
        return stage.path
    found = verify.problems(checkpoint, _world_size(checkpoint), checksums=True)
    if found:
        raise SystemFault("bug", f"the checkpoint {checkpoint} is not whole: {'; '.join(found)}")
    stage.begin(config_to_dict(config), inputs)
    work = stage.path / "work"
    shutil.rmtree(work, ignore_errors=True)
    actor, shards = checkpoint / "actor", Shards(checkpoint / "actor", _world_size(checkpoint))
    if is_adapter(shards):
        add_adapter(read_adapter(actor, shards), model, work)
    else:
        _run_verl_merger(config, paths, actor, work, model)
        tensors.carry_over(model, work)
    for name in _CARRIED:
        if (model / name).is_file():
            shutil.copyfile(model / name, work / name)
    comparison = tensors.compare(model, work, _reach(config))
    sample = generate_one(work)
    for old in stage.path.glob("*.safetensors*"):
        old.unlink()
    for path in work.iterdir():
        os.replace(path, stage.path / path.name)
    work.rmdir()
    stage.done(step=verify.step_of(checkpoint), tensors=asdict(comparison), generated=sample)
    return stage.path


def _reach(config: Config) -> tensors.Reach:
    """An adapter's product and an optimizer that was set otherwise have no such bound."""
    train = config.train
    if train.lora_rank or any(".optim." in key for key in train.verl):
        return tensors.Reach()
    return tensors.adam_reach(train.learning_rate, train.weight_decay, train.steps)


def _trained(config: Config, paths: TrainPaths) -> Path:
    latest = verify.latest_verified(paths.checkpoints)
    step = verify.step_of(latest) if latest else None
    if latest is None or step != config.train.steps:
        raise UserError(
            f"training in {paths.stage} stands at step {step or 0} of {config.train.steps}",
            "only the checkpoint of the last step is merged",
            "run jobs/train.py again with the same run directory; it goes on from there",
        )
    return latest


def _world_size(checkpoint: Path) -> int:
    size: int = json.loads((checkpoint / verify.MARK).read_text())["world_size"]
    return size


def _sizes(checkpoint: Path) -> dict[str, int]:
    sizes: dict[str, int] = json.loads((checkpoint / verify.MARK).read_text())["bytes"]
    return sizes


def _run_verl_merger(config: Config, paths: TrainPaths, actor: Path, target: Path, base: Path) -> None:
    paths.logs.mkdir(parents=True, exist_ok=True)
    log = paths.logs / "merge.log"
    command = [sys.executable, "-m", "stateward.training.verl_merger"]
    command += ["--base", str(base), "--actor", str(actor), "--target", str(target)]
    env = {**os.environ, **worker_environment(config, paths), **metadata_environment(paths.plan)}
    with open(log, "wb") as out:
        merger = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, env=env)
    if merger.returncode:
        raise SystemFault("bug", f"Verl's merger ended with {merger.returncode}; its last lines:\n{_tail(log)}")


def generate_one(model: Path) -> list[int]:
    """Load the folder as anyone would and sample one token greedily. Returns prompt and sampled ids.

    Raises:
        SystemFault: it does not load, weights are missing or left over, or nothing comes out.
    """
    import torch
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(model), local_files_only=True)
    loaded, report = _model_class(model).from_pretrained(
        str(model), dtype=torch.bfloat16, local_files_only=True, output_loading_info=True
    )
    odd = [*report["missing_keys"], *report["mismatched_keys"]]
    if odd:
        raise SystemFault("bug", f"{model} loads with missing or mismatched weights: {odd[:5]}")
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": "hello"}], add_generation_prompt=True, return_dict=True, return_tensors="pt"
    )
    with torch.inference_mode():
        ids = loaded.generate(**prompt, max_new_tokens=1, do_sample=False)[0].tolist()
    if len(ids) != prompt["input_ids"].shape[1] + 1:
        raise SystemFault("bug", f"{model} generated {len(ids) - prompt['input_ids'].shape[1]} tokens instead of one")
    return [int(i) for i in ids]


def _model_class(model: Path) -> Any:
    """Of a checkpoint that can see, the class that does, as Verl trains it: as a causal model, transformers would take
    its language model alone and leave the rest unread."""
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText

    config = AutoConfig.from_pretrained(str(model), local_files_only=True)
    sees = type(config) in AutoModelForImageTextToText._model_mapping
    return AutoModelForImageTextToText if sees else AutoModelForCausalLM


def _tail(path: Path, lines: int = 20) -> str:
    return "\n".join(path.read_text(errors="replace").splitlines()[-lines:])
