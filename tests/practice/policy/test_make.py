"""The recipe makes a checkpoint, and twice the same one."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from stateward.practice.policy import RECIPE
from stateward.practice.policy.demonstrations import order_desk
from stateward.practice.policy.make import make
from stateward.practice.policy.provenance import read_note, recipe_hash
from stateward.practice.policy.tokenizer import render
from stateward.practice.policy.training import encode, new_model, raise_residual, states_behind

SHORT = dataclasses.replace(RECIPE, tokenizer_texts=30, steps=4, batch=8)


@pytest.mark.slow
def test_a_shortened_run_is_reproduced_to_the_byte(tmp_path: Path) -> None:
    notes = []
    for name in ("one", "two"):
        make(SHORT, tmp_path / name, show=False)
        notes.append(read_note(tmp_path / name))
    assert notes[0]["recipe_hash"] == recipe_hash(SHORT)
    assert "model.safetensors" in notes[0]["files"]
    assert notes[0]["files"] == notes[1]["files"]


def test_the_mask_covers_what_the_assistant_writes(tokenizer: Any) -> None:
    text = render(
        [
            {"role": "user", "content": "assistant\nWhere is it?"},
            {"role": "assistant", "content": "What is the order id?"},
            {"role": "user", "content": "ORD-1001"},
            {"role": "assistant", "content": "Lost. <DONE>"},
        ]
    )
    one = encode(tokenizer, text)
    assert tokenizer.decode(one.ids) == text
    written = tokenizer.decode([i for i, m in zip(one.ids, one.mask, strict=True) if m])
    assert written == "What is the order id?<|im_end|>Lost. <DONE><|im_end|>"


def test_a_raised_residual_leaves_the_function_as_it_is(tokenizer: Any) -> None:
    import torch

    model = new_model(RECIPE, tokenizer).eval()
    ids = torch.randint(0, len(tokenizer), (2, 30))
    with torch.no_grad():
        before = model(input_ids=ids).logits
        raise_residual(model, 8.0)
        torch.testing.assert_close(model(input_ids=ids).logits, before, atol=1e-4, rtol=1e-4)
    assert model.model.embed_tokens.weight.std() > 5


def test_a_shared_prefix_gives_the_states_of_the_whole_sequence(tokenizer: Any) -> None:
    import torch

    model = new_model(RECIPE, tokenizer).eval()
    head = tokenizer(render([{"role": "system", "content": order_desk().system}]))["input_ids"]
    prefix, ids = torch.tensor(head), torch.randint(0, len(tokenizer), (3, 20))
    with torch.no_grad():
        shared = states_behind(model, prefix, ids)
        whole = model.model(input_ids=torch.cat([prefix.expand(3, -1), ids], 1)).last_hidden_state[:, len(prefix) :]
    torch.testing.assert_close(shared, whole, atol=1e-4, rtol=1e-4)
