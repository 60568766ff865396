"""What must hold before the first step: each check costs seconds, each fault would cost a reservation."""

from __future__ import annotations

import asyncio
import importlib.metadata
import json
import shutil
from collections.abc import Sequence
from pathlib import Path

from stateward.config import Config
from stateward.errors import SystemFault, UserError
from stateward.policy import preflight
from stateward.tasks.task import Task
from stateward.training import verify
from stateward.training.layout import Layout
from stateward.training.memory import Budget, budgets, check_budgets, model_size
from stateward.training.paths import KEEP
from stateward.training.tensors import precisions
from stateward.training.verl_hooks import KNOWN_VERL

_CHECKPOINT_FILES = ("config.json", "tokenizer.json", "tokenizer_config.json")


def check_versions() -> None:
    """The corrections of Verl fit one version of it.

    Raises:
        UserError: Verl is missing, or another version.
    """
    try:
        version = importlib.metadata.version("verl")
    except importlib.metadata.PackageNotFoundError:
        raise UserError("Verl is not installed", do="make setup, or use the container") from None
    if version != KNOWN_VERL:
        raise UserError(
            f"Verl {version} is installed",
            f"the corrections in training/verl_hooks.py were written against {KNOWN_VERL}",
            f"install verl=={KNOWN_VERL}",
        )


def check_model_files(model: Path) -> None:
    """Everything that Verl, vLLM and the renderer read is there, every shard of the index included, and nothing in it
    is quantised.

    Raises:
        UserError: something is missing, or could not be merged after training.
    """
    missing = [name for name in _CHECKPOINT_FILES if not (model / name).is_file()]
    index = model / "model.safetensors.index.json"
    if index.is_file():
        shards = sorted(set(json.loads(index.read_text())["weight_map"].values()))
        missing += [name for name in shards if not (model / name).is_file()]
    elif not any(model.glob("*.safetensors")):
        missing.append("*.safetensors")
    if missing:
        raise UserError(f"{model} lacks {', '.join(missing[:5])}", do="copy the whole checkpoint")
    inline = "chat_template" in json.loads((model / "tokenizer_config.json").read_text())
    if not inline and not (model / "chat_template.jinja").is_file():
        raise UserError(
            f"{model} has no chat template",
            "neither chat_template.jinja nor one in tokenizer_config.json",
            "take an instruction-tuned checkpoint, or save the template beside it",
        )
    precisions(model)


def check_heads(model: Path, layout: Layout) -> None:
    """Attention heads can be divided as vLLM's tensor parallelism and Ulysses divide them.

    Raises:
        UserError: they cannot (vLLM 0.32, ``verify_with_parallel_config``; verl 0.9.1, ``apply_monkey_patch``).
    """
    config = json.loads((model / "config.json").read_text())
    text = config.get("text_config", config)
    heads = int(text["num_attention_heads"])
    pairs = int(text.get("num_key_value_heads", heads))
    for name, parts in (
        ("train.rollout_tensor_parallel", layout.tensor_parallel),
        ("train.ulysses", layout.sequence_parallel),
    ):
        if heads % parts or (pairs % parts and parts % pairs):
            near = [n for n in range(1, heads + 1) if heads % n == 0 and (pairs % n == 0 or n % pairs == 0)]
            raise UserError(
                f"{name}={parts} does not divide the model's attention",
                f"{model / 'config.json'} has {heads} heads and {pairs} pairs of keys and values",
                f"use one of {', '.join(map(str, near))}",
            )


#: Models whose linear attention Verl divides over the devices of one sequence (verl 0.9.1, ``apply_monkey_patch``).
_DIVIDED_HYBRIDS = ("qwen3_5", "qwen3_5_moe")


def check_hybrid(model: Path, layout: Layout) -> None:
    """A model with linear attention is trained with sequence parallelism only if Verl passes its state on.

    Raises:
        UserError: Verl does not: each device would begin its part of an episode with an empty state.
    """
    config = json.loads((model / "config.json").read_text())
    kinds = config.get("text_config", config).get("layer_types") or []
    hybrid = any(kind.startswith("linear") for kind in kinds)
    if layout.sequence_parallel > 1 and hybrid and config["model_type"] not in _DIVIDED_HYBRIDS:
        raise UserError(
            f"train.ulysses={layout.sequence_parallel} with linear attention of model_type {config['model_type']!r}",
            f"Verl {KNOWN_VERL} passes the state of linear attention from device to device only for "
            f"{' and '.join(_DIVIDED_HYBRIDS)}",
            "set train.ulysses=1",
        )


def check_disjoint(evidence: Path, pool: Sequence[Task]) -> None:
    """The contamination guard compared this very pool with the benchmark and found them disjoint.

    Raises:
        UserError: no evidence, an overlap, or tasks that the guard has not seen.
    """
    if not evidence.is_file():
        raise UserError(
            f"{evidence} is not there",
            "nothing proves that the pool and the benchmark are disjoint",
            "run jobs/curate.py; it writes the evidence beside the pool",
        )
    found = json.loads(evidence.read_text())
    if found["verdict"] != "disjoint":
        raise UserError(f"{evidence} says {found['verdict']}", do="exclude the shared tasks and curate again")
    seen = {entry["uid"] for entry in found["pool"]}
    unseen = sorted(task.uid for task in pool if task.uid not in seen)
    if unseen:
        raise UserError(
            f"{len(unseen)} tasks of the pool were not compared with the benchmark, first {unseen[0]}",
            f"{evidence} is about another pool",
            "run jobs/curate.py again, or train on its own pool/train.yaml",
        )


def check_room(folder: Path, needed: float) -> None:
    """The file system of `folder` has room for the checkpoints that are still to come.

    `needed` bytes is for a run from scratch, `KEEP` + 1 checkpoints. Those that stand there whole count as written, at
    the size that they have. What killed saves have left goes if the room is not enough with it.

    Raises:
        UserError: it has not.
    """
    folder.mkdir(parents=True, exist_ok=True)
    sizes = verify.verified_sizes(folder)
    more = (KEEP + 1 - len(sizes)) * (sizes[-1] if sizes else needed / (KEEP + 1))
    if shutil.disk_usage(folder).free < more:
        verify.remove_incomplete(folder)
    free = shutil.disk_usage(folder).free
    if free < more:
        raise UserError(
            f"{folder} has {free / 1e9:.1f} GB free, and the checkpoints need {more / 1e9:.1f} GB"
            + (f" besides the {len(sizes)} that stand there" if sizes else ""),
            f"{KEEP} are kept while another is written",
            "make room, or use a run directory on another file system",
        )


def memory_budgets(config: Config, layout: Layout, model: Path) -> list[Budget]:
    """The budgets of the run, checked against what the configuration says is there."""
    found = budgets(config, layout, model_size(model))
    check_budgets(found)
    return found


def check_prompts(config: Config, model: Path, pool: Sequence[Task]) -> int:
    """Open every task's world once, render its first prompt with its tools, and refuse what does not fit.

    Verl would cut a long prompt on the left and train on what is left of it. Returns the longest prompt's tokens.

    Raises:
        UserError: prompts that are too long, or that the template refuses, by name.
        SystemFault: a world does not open.
    """
    lengths = asyncio.run(_measure(config, model, pool))
    for uid, length in lengths.items():
        if isinstance(length, SystemFault) and length.kind != "render":
            raise SystemFault(length.kind, f"{uid}: {length.cause}")
    return preflight.check_prompts(lengths, limit=config.policy.max_prompt_tokens, setting="policy.max_prompt_tokens")


async def _measure(config: Config, model: Path, pool: Sequence[Task]) -> dict[str, int | SystemFault]:
    from stateward.episode import measure_prompts, open_environment
    from stateward.policy import open_policy

    opened = open_policy(model, config.policy)
    async with open_environment(config.episode) as environment:
        return await measure_prompts(environment, opened, pool, concurrency=config.episode.concurrency)
