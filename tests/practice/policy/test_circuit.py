"""A new model copies before it has learned anything."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import pytest

from stateward.practice.policy import RECIPE
from stateward.practice.policy.training import new_model


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("between", [0, 250])
def test_untrained_weights_repeat_a_random_sequence(tokenizer: Any, seed: int, between: int) -> None:
    import torch

    model = new_model(dataclasses.replace(RECIPE, seed=seed), tokenizer)
    words = random.Random(seed).sample(range(model.config.vocab_size), 60 + between)
    first, gap = words[:60], words[60:]
    ids = torch.tensor([[*first, *gap, *first]])
    with torch.no_grad():
        guess = model(input_ids=ids).logits[0, 60 + between : -1].argmax(-1)
    right = (guess == ids[0, 61 + between :]).float().mean().item()
    assert right > 0.8  # without the circuit it is about 1 / vocabulary
