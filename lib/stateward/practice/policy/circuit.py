"""First weights that can already copy: a head that looks one token back, and a head that finds and repeats.

A model of this size does not learn from demonstrations alone to copy an order's id into a call, and learning it from
repeated random tokens takes longer than everything else. What is learned there is known, though: an *induction circuit*
(Olsson et al. 2022, "In-context learning and induction heads"): one head of the first layer writes each token's
predecessor beside it; one head of the second layer looks for the place whose predecessor is the present token, and
predicts what stands there. Both are written into the random first weights here; training is free to change them.

The residual stream is divided for that purpose: what the token is, a constant, the predecessor, the prediction.
Rotary positions: pair i of a head's dimensions, (i, i + head_dim / 2), turns by theta ** (-2 i / head_dim) per token.
The fastest pairs tell neighbours apart, the slowest hardly turn within a conversation and leave tokens comparable at
any distance.
"""

from __future__ import annotations

import math
from typing import Any

#: How sharply the two heads attend: the product of their query and key norms' weights.
SHARPNESS = 2.5
#: Pairs of dimensions that find the token before, and the first pair of those that compare tokens.
FAST_PAIRS, FIRST_SLOW_PAIR = 4, 9
#: Share of the prediction in the first logits.
LOUDNESS = 0.6


def write_circuit(model: Any) -> None:
    """Overwrite head 0 of layers 0 and 1, the embeddings and the LM head of a new `Qwen3ForCausalLM`, in place.

    Random values come from torch's global generator.
    """
    import torch

    config = model.config
    width, pairs = config.head_dim, config.head_dim // 2
    token = slice(0, config.hidden_size - 2 * width - 4)
    constant = slice(token.stop, token.stop + 4)
    before = slice(constant.stop, constant.stop + width)
    prediction = slice(before.stop, before.stop + width)
    turn = [config.rope_parameters["rope_theta"] ** (-i / pairs) for i in range(pairs)]
    first, second = (layer.self_attn for layer in model.model.layers[:2])
    with torch.no_grad():
        embedding = model.model.embed_tokens.weight
        embedding[:, token] = torch.randn(len(embedding), token.stop)
        embedding[:, constant] = 1.0
        for head in (first, second):
            for projection in (head.q_proj, head.k_proj, head.v_proj):
                projection.weight[:width] = 0.0
            head.o_proj.weight[:, :width] = 0.0
            head.q_norm.weight.fill_(math.sqrt(SHARPNESS))
            head.k_norm.weight.fill_(math.sqrt(SHARPNESS))

        # The query is the key turned back by one position: they agree best one token before.
        for i in range(FAST_PAIRS):
            first.k_proj.weight[i, constant] = 1.0
            first.q_proj.weight[i, constant] = math.cos(turn[i])
            first.q_proj.weight[i + pairs, constant] = -math.sin(turn[i])
        shadow = _rows(width, token.stop)
        first.v_proj.weight[:width, token] = shadow
        first.o_proj.weight[before, :width] = torch.eye(width)

        # The query is the token's shadow, the key the predecessor's: they agree where the token was followed.
        slow = [i + half for half in (0, pairs) for i in range(FIRST_SLOW_PAIR, pairs)]
        second.q_proj.weight[slow, token] = shadow[: len(slow)]
        second.k_proj.weight[slow, before] = torch.eye(width)[: len(slow)]
        spoken = _rows(width, token.stop)
        second.v_proj.weight[:width, token] = spoken
        second.o_proj.weight[prediction, :width] = torch.eye(width)
        model.lm_head.weight[:, prediction] = LOUDNESS * embedding[:, token] @ spoken.T


def _rows(count: int, length: int) -> Any:
    """Random orthonormal rows, [count, length]."""
    import torch

    columns, _ = torch.linalg.qr(torch.randn(length, count))
    return columns.T
