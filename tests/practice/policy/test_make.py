"""The recipe makes a checkpoint, and twice the same one."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch

from stateward.policy import load_tokenizer
from stateward.practice.policy import RECIPE, SHIPPED
from stateward.practice.policy.demonstrations import order_desk
from stateward.practice.policy.make import make
from stateward.practice.policy.provenance import read_note, recipe_hash
from stateward.practice.policy.tokenizer import render
from stateward.practice.policy.training import encode, new_model, raise_residual, states_behind

TOKENIZER = load_tokenizer(SHIPPED)
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


def test_the_mask_covers_what_the_assistant_writes() -> None:
    text = render(
        [
            {"role": "user", "content": "assistant\nWhere is it?"},
            {"role": "assistant", "content": "What is the order id?"},
            {"role": "user", "content": "ORD-1001"},
            {"role": "assistant", "content": "Lost. <DONE>"},
        ]
    )
    one = encode(TOKENIZER, text)
    assert TOKENIZER.decode(one.ids) == text
    written = TOKENIZER.decode([i for i, m in zip(one.ids, one.mask, strict=True) if m])
    assert written == "What is the order id?<|im_end|>Lost. <DONE><|im_end|>"


def test_a_raised_residual_leaves_the_function_as_it_is() -> None:
    model = new_model(RECIPE, TOKENIZER).eval()
    ids = torch.randint(0, len(TOKENIZER), (2, 30))
    with torch.no_grad():
        before = model(input_ids=ids).logits
        raise_residual(model, 8.0)
        torch.testing.assert_close(model(input_ids=ids).logits, before, atol=1e-4, rtol=1e-4)
    assert model.model.embed_tokens.weight.std() > 5


def test_a_shared_prefix_gives_the_states_of_the_whole_sequence() -> None:
    model = new_model(RECIPE, TOKENIZER).eval()
    head = TOKENIZER(render([{"role": "system", "content": order_desk().system}]))["input_ids"]
    prefix, ids = torch.tensor(head), torch.randint(0, len(TOKENIZER), (3, 20))
    with torch.no_grad():
        shared = states_behind(model, prefix, ids)
        whole = model.model(input_ids=torch.cat([prefix.expand(3, -1), ids], 1)).last_hidden_state[:, len(prefix) :]
    torch.testing.assert_close(shared, whole, atol=1e-4, rtol=1e-4)
