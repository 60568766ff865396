"""A vLLM logits processor that leaves one token possible at each step: ``vllm_xargs={"forced": [ids]}``.

With it a model of random weights says anything, token by token: texts, odd tokenisations, broken characters.
"""

from __future__ import annotations

from typing import Any

import torch
from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor
from vllm.v1.sample.logits_processor.interface import MoveDirectionality


class Forced(LogitsProcessor):
    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        self.rows: dict[int, tuple[list[int], list[int]]] = {}  # batch row → forced ids, ids so far

    def is_argmax_invariant(self) -> bool:
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        if batch_update is None:
            return
        for row in batch_update.removed:
            self.rows.pop(row, None)
        for row, params, _, output in batch_update.added:
            self.rows.pop(row, None)
            forced = (params.extra_args or {}).get("forced")
            if forced:
                self.rows[row] = ([int(i) for i in forced], output)
        for source, target, direction in batch_update.moved:
            moved, other = self.rows.pop(source, None), self.rows.pop(target, None)
            if moved is not None:
                self.rows[target] = moved
            if direction is MoveDirectionality.SWAP and other is not None:
                self.rows[source] = other

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (forced, output) in self.rows.items():
            if len(output) < len(forced):
                wanted = forced[len(output)]
                logits[row] = float("-inf")
                logits[row, wanted] = 0.0
        return logits
