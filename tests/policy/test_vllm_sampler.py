"""The sampler over a vLLM server, here against a server that misbehaves on demand; tests/vllm has the real one."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

from stateward.config import SamplingConfig
from stateward.errors import SystemFault
from stateward.outcome import Usage
from stateward.policy.samplers.vllm import VllmSampler
from stateward.policy.thinking import ThinkingMarks


def completion(prompt: list[int], ids: list[int], **change: Any) -> tuple[int, dict[str, str], dict[str, Any]]:
    choice = {
        "token_ids": ids,
        "prompt_token_ids": prompt,
        "logprobs": {"token_logprobs": [-0.5] * len(ids)},
        "finish_reason": "stop",
        **change,
    }
    details = {"prompt_tokens_details": {"cached_tokens": 2}}
    return 200, {}, {"choices": [choice], "usage": {"prompt_tokens": len(prompt), **details}}


async def sampled(endpoint: Any, qwen: ModuleType, prompt: list[int]) -> Any:
    async with VllmSampler(
        endpoint.url, "key", SamplingConfig(), tokenizer=qwen.tokenizer(), model="policy"
    ) as sampler:
        return await sampler.sample(prompt, max_tokens=5, seed=11)


async def test_vllm_sampler_sends_and_reads_tokens(endpoint: Any, qwen: ModuleType) -> None:
    stop = qwen.tokenizer().eos_token_id
    endpoint.answers = [completion([1, 2, 3], [7, 8, stop])]
    sample = await sampled(endpoint, qwen, [1, 2, 3])
    assert (sample.ids, sample.logprobs, sample.finish) == ((7, 8, stop), (-0.5,) * 3, "stop")
    assert sample.usage == Usage(requests=1, prompt=3, cached=2, completion=3)
    path, body, headers = endpoint.requests[0]
    assert (path, headers["Authorization"]) == ("/v1/completions", "Bearer key")
    assert body == {
        "model": "policy",
        "prompt": [1, 2, 3],
        "max_tokens": 5,
        "seed": 11,
        "temperature": 1.0,
        "top_p": 0.95,
        "top_k": 20,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "stop_token_ids": [stop],
        "logprobs": 0,
        "return_token_ids": True,
        "skip_special_tokens": False,
    }


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"prompt_token_ids": [2, 3]}, "read 2 prompt tokens, not the 3 that were sent"),
        ({"finish_reason": "abort"}, "ended with 'abort'"),
        ({"token_ids": []}, "0 tokens and 2 log-probabilities"),
        ({"logprobs": None}, "returns token ids"),
        ({"logprobs": {"token_logprobs": [-0.5, None]}}, "returns token ids"),
        ({"logprobs": {"token_logprobs": [-0.5, float("nan")]}}, "no finite numbers"),
    ],
)
async def test_vllm_sampler_trusts_nothing(endpoint: Any, qwen: ModuleType, change: dict[str, Any], said: str) -> None:
    endpoint.answers = [completion([1, 2, 3], [7, 8], **change)]
    with pytest.raises(SystemFault, match=said):
        await sampled(endpoint, qwen, [1, 2, 3])


def test_reasoning_tokens_are_counted() -> None:
    marks = ThinkingMarks(start=90, end=91)
    assert marks.count([1, 90, 2], [5, 6, 91, 7]) == 2
    assert marks.count([1, 2], [90, 5, 91, 7]) == 1
    assert marks.count([1, 90, 2], [5, 6]) == 2  # opened by the prompt, never closed
    assert marks.count([1, 2], [90, 5]) == 1
    assert marks.count([1, 90, 91, 2], [5, 6]) == 0  # closed by the prompt
    assert marks.count([1, 2], [5, 6]) == 0
    assert ThinkingMarks().count([1], [5]) == 0
