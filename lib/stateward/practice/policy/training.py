"""Plain supervised training of the tiny model on demonstrations, with the loss on the assistant's tokens."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from stateward.practice.policy.circuit import write_circuit
from stateward.practice.policy.recipe import Recipe
from stateward.practice.policy.tokenizer import END_OF_TEXT, TURN_END, TURN_START


@dataclass(frozen=True)
class Encoded:
    """One sequence: `ids` and `mask` of shape [T]; mask 1 where the token is the policy's to write."""

    ids: Sequence[int]
    mask: Sequence[int]


def encode(tokenizer: Any, text: str) -> Encoded:
    """A rendered conversation; the mask covers each assistant turn from its first token to its end mark."""
    ids: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
    start, end = (tokenizer.convert_tokens_to_ids(t) for t in (TURN_START, TURN_END))
    header: list[int] = tokenizer("assistant\n", add_special_tokens=False)["input_ids"]
    mask, position = [0] * len(ids), 0
    while position < len(ids):
        if ids[position] == start and ids[position + 1 : position + 1 + len(header)] == header:
            position += 1 + len(header)
            while ids[position] != end:
                mask[position] = 1
                position += 1
            mask[position] = 1
        position += 1
    return Encoded(ids, mask)


def new_model(recipe: Recipe, tokenizer: Any) -> Any:
    """A `Qwen3ForCausalLM` in float32, seeded, that can copy; its embeddings are untied, as the circuit needs."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(recipe.seed)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=recipe.hidden,
        num_hidden_layers=recipe.layers,
        num_attention_heads=recipe.heads,
        num_key_value_heads=recipe.heads,
        head_dim=recipe.head_dim,
        intermediate_size=recipe.intermediate,
        max_position_embeddings=4_096,
        rope_parameters={"rope_type": "default", "rope_theta": 1_000_000.0},
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=tokenizer.convert_tokens_to_ids(TURN_END),
        pad_token_id=tokenizer.convert_tokens_to_ids(END_OF_TEXT),
        attn_implementation="sdpa",
    )
    model = Qwen3ForCausalLM(config)
    write_circuit(model)
    return model


def new_optimizers(recipe: Recipe, model: Any) -> list[Any]:
    """Muon for the layers' matrices, which needs a third fewer steps here than AdamW, and AdamW for everything else."""
    import torch

    named = list(model.named_parameters())
    inner = [p for name, p in named if p.ndim == 2 and ".layers." in name]
    outer = [p for name, p in named if p.ndim != 2 or ".layers." not in name]
    muon = torch.optim.Muon(inner, lr=recipe.learning_rate, weight_decay=0.0, adjust_lr_fn="match_rms_adamw")
    adam = torch.optim.AdamW(outer, lr=recipe.learning_rate, betas=(0.9, 0.95), weight_decay=0.01, fused=True)
    return [muon, adam]


def batches(recipe: Recipe, demonstrations: Sequence[Encoded]) -> Iterator[list[Encoded]]:
    """All demonstrations once, in `recipe.steps` batches. Like lengths stand together, so that little is padded."""
    rng = random.Random(f"batches {recipe.seed}")
    size = 16 * recipe.batch
    for start in range(0, len(demonstrations), size):
        block = sorted(demonstrations[start : start + size], key=lambda e: len(e.ids))
        ready = [block[i : i + recipe.batch] for i in range(0, len(block), recipe.batch)]
        rng.shuffle(ready)
        yield from ready


def states_behind(model: Any, prefix: Any, ids: Any) -> Any:
    """Hidden states of `ids` [B, T] behind the common `prefix` [P], which is computed once: [B, T, hidden].

    Every conversation begins with the same instructions and tools, which are longer than what follows. Gradients flow
    through the prefix as if it had been computed in every row.
    """
    from transformers import DynamicCache

    cache = DynamicCache()
    model.model(input_ids=prefix[None], past_key_values=cache, use_cache=True)
    for layer in cache.layers:
        layer.keys = layer.keys.expand(len(ids), -1, -1, -1)
        layer.values = layer.values.expand(len(ids), -1, -1, -1)
    return model.model(input_ids=ids, past_key_values=cache, use_cache=True).last_hidden_state


def train(
    recipe: Recipe, tokenizer: Any, prefix: Sequence[int], demonstrations: Sequence[Encoded], *, show: bool = True
) -> Any:
    """The trained model, in float32 on the CPU; shows a progress bar with the loss and the share of right tokens.

    Linear warm-up and cosine decay to a twentieth; matrix products in bfloat16, weights in float32.
    """
    import torch
    from torch.nn import functional
    from tqdm import tqdm

    torch.set_num_threads(recipe.threads)
    model = new_model(recipe, tokenizer)
    optimizers = new_optimizers(recipe, model)
    pad, head = tokenizer.pad_token_id, torch.tensor(prefix)
    bar = tqdm(total=recipe.steps, desc="practice policy", unit="step", disable=not show)
    for step, batch in enumerate(batches(recipe, demonstrations)):
        scale = min(1.0, (step + 1) / recipe.warmup) * (0.525 + 0.475 * math.cos(math.pi * step / recipe.steps))
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = recipe.learning_rate * scale
        width = max(len(e.ids) for e in batch)
        ids = torch.tensor([[*e.ids, *[pad] * (width - len(e.ids))] for e in batch])
        mask = torch.tensor([[*e.mask, *[0] * (width - len(e.mask))] for e in batch], dtype=torch.bool)
        # Padding stands on the right, where causal attention never looks: no attention mask is needed.
        with torch.autocast("cpu", dtype=torch.bfloat16):
            states = states_behind(model, head, ids[:, :-1])
            logits = model.lm_head(states[mask[:, 1:]])
        targets = ids[:, 1:][mask[:, 1:]]
        loss = functional.cross_entropy(logits.float(), targets)
        model.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
        right = (logits.argmax(-1) == targets).float().mean().item()
        bar.set_postfix(loss=f"{loss.item():.3f}", right=f"{right:.3f}", width=width)
        bar.update()
    bar.close()
    raise_residual(model, recipe.residual)
    return model.eval()


def raise_residual(model: Any, factor: float) -> None:
    """Multiply the residual stream by `factor`, in place; every layer normalises it, so the function stays the same.

    What changes is how the model learns further. Adam's steps are of one size for all weights; beside embeddings that
    are `factor` times as large they are small, and reinforcement learning teaches rules in the layers and not
    single tasks by their ids: measured on held-out tasks, that is most of its gain.
    """
    import torch

    with torch.no_grad():
        model.model.embed_tokens.weight *= factor
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight *= factor
            layer.mlp.down_proj.weight *= factor
