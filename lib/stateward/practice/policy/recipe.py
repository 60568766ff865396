"""What the shipped checkpoint was made of: sizes, steps and seeds. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

#: Slips of the scripted expert, each the probability of a choice against a rule where the rule decides (see `expert`).
#: They differ so that the tasks' success rates spread over all bands of difficulty.
SLIPS: dict[str, float] = {
    "gives up instead of asking": 0.25,
    "takes another of the list": 0.35,
    "forgets the second": 0.30,
    "refuses to cancel": 0.10,
    "cancels in a wrong status": 0.55,
    "cancels without asking": 0.45,
    "cancels against a no": 0.15,
    "refuses quantity": 0.30,
    "refuses address": 0.20,
    "refuses home": 0.20,
    "refuses note": 0.03,
    "keeps the old address": 0.35,
    "changes quantity in a wrong status": 0.70,
    "changes address in a wrong status": 0.50,
    "changes home in a wrong status": 0.50,
    "changes note in a wrong status": 0.35,
    "refunds in a wrong status": 0.75,
    "refunds twice": 0.75,
    "refunds too much": 0.96,
    "refunds the whole": 0.50,
    "skips approval": 0.60,
    "refunds against the manager": 0.30,
    "asks approval in vain": 0.35,
    "refunds a complaint": 0.40,
}


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The same recipe and the same source give the same weights on the same kind of processor.

    Attributes:
        seed: of the weights, the demonstrations and the order of batches.
        hidden / layers / heads / intermediate: sizes of the Qwen3 model; head_dim 32 is the smallest that vLLM's CPU
            attention takes.
        vocabulary: of the tokenizer, without the world's identifiers and names.
        tokenizer_texts: demonstrations from which BPE learns its merges.
        steps / batch: every step learns from `batch` new demonstrations. None is seen twice, so that the slips of a few
            are not learned by heart.
        residual: factor of the residual stream in the finished weights (see `training.raise_residual`).
        threads: of torch; part of the recipe since sums depend on it.
    """

    seed: int = 17
    hidden: int = 128
    layers: int = 3
    heads: int = 4
    head_dim: int = 32
    intermediate: int = 384
    vocabulary: int = 1_100
    tokenizer_texts: int = 1_500
    steps: int = 800
    batch: int = 32
    learning_rate: float = 3e-3
    warmup: int = 50
    residual: float = 8.0
    threads: int = 2
    slips: Mapping[str, float] = field(default_factory=lambda: dict(SLIPS))


RECIPE = Recipe()
