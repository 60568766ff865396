"""Samples through Verl's rollout engine, in process: token ids in, token ids and log-probabilities out.

Nothing of Verl is imported. What is needed is its server client's ``generate`` (verl 0.9.1,
``verl/workers/rollout/llm_server.py``), which is passed in.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from stateward.config import SamplingConfig
from stateward.errors import SystemFault
from stateward.outcome import Usage
from stateward.policy.turn import Sample


class Generate(Protocol):
    """Verl's ``LLMServerClient.generate``; the result has `token_ids`, `log_probs`, `stop_reason`, `extra_fields`."""

    async def __call__(self, *, request_id: str, prompt_ids: list[int], sampling_params: dict[str, Any]) -> Any: ...


@dataclass(kw_only=True)
class VerlSampler:
    """The sampler of one episode.

    Args:
        generate: Verl's client.
        sampling: temperature, top-k, top-p.
        stop_ids: tokens that end a turn; they tell a finished turn from a truncated one, which Verl reports alike.
        request_id: of the episode: its turns go to the engine that holds their prefix.
        retries: further attempts of one turn after a failure of the engine; the seed makes them the same attempt.
        deadline_seconds: of one turn, over all attempts and waits: an engine that hangs says nothing.

    Attributes:
        versions: the weight versions (Verl's global steps) that turns were sampled with.
    """

    generate: Generate
    sampling: SamplingConfig
    stop_ids: frozenset[int]
    request_id: str
    retries: int = 2
    deadline_seconds: float = 900.0
    versions: set[int] = field(default_factory=set)

    async def sample(self, prompt_ids: list[int], *, max_tokens: int, seed: int) -> Sample:
        """One turn.

        Raises:
            SystemFault("sampler"): the engine failed in every attempt, gave no turn within the deadline, or aborted it.
        """
        params = {
            "temperature": self.sampling.temperature,
            "top_k": self.sampling.top_k,
            "top_p": self.sampling.top_p,
            "repetition_penalty": 1.0,
            "logprobs": True,
            "max_tokens": max_tokens,
            "seed": seed,
        }
        try:
            async with asyncio.timeout(self.deadline_seconds):
                output = await self._generated(prompt_ids, params)
        except TimeoutError as error:
            raise SystemFault(
                "sampler", f"the rollout engine gave no turn within {self.deadline_seconds:g} s"
            ) from error
        return self._sample(output, len(prompt_ids), max_tokens)

    async def _generated(self, prompt_ids: list[int], params: dict[str, Any]) -> Any:
        """The engine's answer, asked for again with growing waits while it fails."""
        attempt = 0
        while True:
            try:
                return await self.generate(
                    request_id=self.request_id, prompt_ids=list(prompt_ids), sampling_params=dict(params)
                )
            except Exception as error:
                if attempt == self.retries:
                    raise SystemFault("sampler", f"the rollout engine: {type(error).__name__}: {error}") from error
            await asyncio.sleep(0.5 * 2**attempt)
            attempt += 1

    def _sample(self, output: Any, prompt_tokens: int, max_tokens: int) -> Sample:
        ids, logprobs = list(output.token_ids), list(output.log_probs or ())
        if output.stop_reason == "aborted" or not ids:
            raise SystemFault("sampler", f"the rollout engine gave {len(ids)} tokens and said {output.stop_reason!r}")
        if len(logprobs) != len(ids):
            raise SystemFault("sampler", f"the rollout engine gave {len(logprobs)} log-probs for {len(ids)} tokens")
        if not all(map(math.isfinite, logprobs)):
            raise SystemFault("sampler", "the rollout engine gave log-probabilities that are no finite numbers")
        version = output.extra_fields.get("global_steps")
        if version is not None:
            self.versions.add(int(version))
        cached = output.extra_fields.get("num_cached_tokens") or 0
        return Sample(
            ids=tuple(ids),
            logprobs=tuple(logprobs),
            finish=finish_reason(ids, self.stop_ids, max_tokens),
            usage=Usage(requests=1, prompt=prompt_tokens, cached=int(cached), completion=len(ids)),
        )


def finish_reason(ids: Sequence[int], stop_ids: frozenset[int], max_tokens: int) -> str:
    """``stop`` if the turn ends in a stop token, otherwise ``length``."""
    return "stop" if ids[-1] in stop_ids or len(ids) < max_tokens else "length"
