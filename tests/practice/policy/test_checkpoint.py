"""The shipped checkpoint: made by the present recipe, small, loadable, and able to work."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import pytest

from stateward.policy import Interpreter, Renderer, Sample, load_tokenizer
from stateward.practice.policy import RECIPE, SHIPPED, ensure_policy
from stateward.practice.policy.demonstrations import order_desk
from stateward.practice.policy.provenance import NOTE, read_note, recipe_hash


def test_the_shipped_files_are_those_of_the_recipe() -> None:
    note = read_note(SHIPPED)
    assert note["recipe_hash"] == recipe_hash(RECIPE), (
        "the recipe, the desk or the tasks' worlds changed: run python -m stateward.practice.policy.make"
    )
    assert note["recipe"] == dataclasses.asdict(RECIPE)
    assert {p.name for p in SHIPPED.iterdir()} == {NOTE, *note["files"]}
    assert ensure_policy() == SHIPPED


def test_it_is_small() -> None:
    assert sum(p.stat().st_size for p in SHIPPED.iterdir()) < 4_000_000
    assert json.loads((SHIPPED / "config.json").read_text())["architectures"] == ["Qwen3ForCausalLM"]


@pytest.mark.parametrize("change", ["slips", "seed", "steps"])
def test_the_hash_sees_a_change(change: str) -> None:
    values = {"slips": {**RECIPE.slips, "skips approval": 0.987}, "seed": 1, "steps": RECIPE.steps + 1}
    assert recipe_hash(dataclasses.replace(RECIPE, **{change: values[change]})) != recipe_hash(RECIPE)


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "chat_template.jinja"])
def test_a_changed_or_missing_file_is_not_a_checkpoint(tmp_path: Path, name: str) -> None:
    copy = Path(shutil.copytree(SHIPPED, tmp_path / "copy"))
    assert read_note(copy)
    (copy / name).write_bytes((copy / name).read_bytes() + b"\n")
    assert read_note(copy) == {}
    (copy / name).unlink()
    assert read_note(copy) == {}


@pytest.mark.slow
def test_its_first_turn_is_a_look_up_that_the_interpreter_understands() -> None:
    import torch
    from transformers import AutoModelForCausalLM

    tokenizer, model = load_tokenizer(SHIPPED), AutoModelForCausalLM.from_pretrained(SHIPPED)
    frame, interpreter = order_desk(), Interpreter(tokenizer, "qwen3_xml")
    renderer = Renderer(tokenizer)
    orders = [f"ORD-{number}" for number in range(1000, 1040)]
    ledgers = [
        renderer.start(
            [{"role": "system", "content": frame.system}, {"role": "user", "content": f"Please refund order {order}."}],
            frame.tools,
        )
        for order in orders
    ]
    with torch.no_grad():  # all prompts have one length
        out = model.generate(torch.tensor([ledger.ids for ledger in ledgers]), do_sample=False, max_new_tokens=40)
    right = 0
    for order, ledger, row in zip(orders, ledgers, out[:, len(ledgers[0].ids) :].tolist(), strict=True):
        ids = row[: row.index(tokenizer.eos_token_id) + 1] if tokenizer.eos_token_id in row else row
        renderer.append_sample(ledger, Sample(ids=tuple(ids), logprobs=(0.0,) * len(ids)))
        calls = [(c.name, c.arguments, c.error) for c in interpreter.interpret(ids, frame.tools).calls]
        right += calls == [("get_order", {"order_id": order}, "")]
    assert right >= 36
