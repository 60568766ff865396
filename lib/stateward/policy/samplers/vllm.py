"""A running vLLM server as the policy: prompt token ids in, sampled token ids and log-probabilities out.

Fields of ``/v1/completions`` as vLLM 0.27 and 0.32 have them: ``prompt`` as ids, ``return_token_ids``, ``logprobs`` 0
(the sampled token's own), ``stop_token_ids``. Log-probabilities are raw: before temperature, top-k and top-p.
"""

from __future__ import annotations

import asyncio
import math
from types import TracebackType
from typing import Any

from stateward.config import SamplingConfig
from stateward.errors import SystemFault
from stateward.outcome import Usage
from stateward.policy.checkpoint import stop_tokens
from stateward.policy.samplers.http import Retry, open_client, post_json
from stateward.policy.thinking import ThinkingMarks
from stateward.policy.turn import Sample


class VllmSampler:
    """Samples turns from a vLLM server; an async context manager that owns the connection.

    Args:
        base_url: of the server, ending in ``/v1``.
        api_key: bearer token; empty for a server without one.
        sampling: temperature, top-k and top-p; `max_tokens` and `seed` come with each call.
        tokenizer: of the checkpoint; its stop tokens are sent along, its thinking marks count reasoning tokens.
        model: name that the server knows the model by; the server's only one if empty.
    """

    def __init__(
        self,
        base_url: str,
        api_key: str,
        sampling: SamplingConfig,
        *,
        tokenizer: Any,
        model: str = "",
        retry: Retry | None = None,
    ) -> None:
        self._client = open_client(base_url, api_key)
        self._retry = retry or Retry()
        self._stop = stop_tokens(tokenizer)
        self._marks = ThinkingMarks.of(tokenizer)
        self._fixed: dict[str, Any] = {
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": sampling.top_k,
            # Stated, or the checkpoint's generation_config.json would choose them here and not in training.
            "min_p": 0.0,
            "repetition_penalty": 1.0,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            "stop_token_ids": list(self._stop),
            "logprobs": 0,
            "return_token_ids": True,
            "skip_special_tokens": False,
            **({"model": model} if model else {}),
        }

    async def __aenter__(self) -> VllmSampler:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.aclose()

    async def sample(self, prompt_ids: list[int], *, max_tokens: int, seed: int) -> Sample:
        """One turn. Raises SystemFault("sampler") if the server fails, or did not read exactly these ids."""
        return await self._sample(prompt_ids, {"max_tokens": max_tokens, "seed": seed})

    async def sample_ids(self, prompt_ids: list[int], ids: list[int]) -> Sample:
        """One turn that can only be `ids`: each token is sampled with no other allowed, behind those before it.

        For preflight: it shows that what the server samples and where it stops is what the interpreter reads.
        """
        steps = await asyncio.gather(
            *(
                self._sample([*prompt_ids, *ids[:number]], {"max_tokens": 1, "seed": 0, "allowed_token_ids": [token]})
                for number, token in enumerate(ids)
            )
        )
        usage = Usage()
        for step in steps:
            usage.add(step.usage)
        return Sample(
            ids=tuple(token for step in steps for token in step.ids),
            logprobs=tuple(logprob for step in steps for logprob in step.logprobs),
            finish=steps[-1].finish,
            usage=usage,
        )

    async def _sample(self, prompt_ids: list[int], more: dict[str, Any]) -> Sample:
        payload = {**self._fixed, "prompt": prompt_ids, **more}
        body = await post_json(self._client, "completions", payload, retry=self._retry, kind="sampler")
        try:
            choice = body["choices"][0]
            ids = tuple(choice["token_ids"])
            logprobs = tuple(float(value) for value in choice["logprobs"]["token_logprobs"])
            finish, read, usage = choice["finish_reason"], choice["prompt_token_ids"], body.get("usage") or {}
        except (KeyError, IndexError, TypeError) as error:
            raise SystemFault(
                "sampler",
                f"the server's answer lacks {error}; a vLLM of 0.27 or newer is needed, which returns token ids",
            ) from error
        if read != prompt_ids:
            raise SystemFault(
                "sampler", f"the server read {len(read)} prompt tokens, not the {len(prompt_ids)} that were sent"
            )
        if not all(map(math.isfinite, logprobs)):
            raise SystemFault("sampler", "the server gave log-probabilities that are no finite numbers")
        if finish not in ("stop", "length") or len(logprobs) != len(ids) or not ids:
            raise SystemFault(
                "sampler",
                f"the server ended with {finish!r}, {len(ids)} tokens and {len(logprobs)} log-probabilities",
            )
        return Sample(
            ids=ids,
            logprobs=logprobs,
            finish=finish,
            usage=Usage(
                requests=1,
                prompt=len(prompt_ids),
                cached=(usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0,
                completion=len(ids),
                reasoning=self._marks.count(prompt_ids, ids),
            ),
        )
