"""The real server: tokens in and out, prompts equal to the chat endpoint's own, preflight through it."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import httpx
import psutil
import pytest

from stateward.cluster.services.vllm import VllmServer
from stateward.config import SamplingConfig
from stateward.errors import SystemFault
from stateward.outcome import Usage
from stateward.policy import Interpreter, Renderer
from stateward.policy.preflight import check_server
from stateward.policy.samplers.vllm import VllmSampler

pytestmark = [pytest.mark.engines, pytest.mark.timeout(1800)]

ASK = [{"role": "user", "content": "Where is order 1042?"}]


def sampler_of(server: VllmServer, qwen: ModuleType, **sampling: Any) -> VllmSampler:
    return VllmSampler(server.base_url, server.api_key, SamplingConfig(**sampling), tokenizer=qwen.tokenizer())


async def test_tokens_in_and_out(xml_server: VllmServer, qwen: ModuleType) -> None:
    prompt = Renderer(qwen.tokenizer()).start(ASK, []).ids
    async with sampler_of(xml_server, qwen) as sampler:
        first = await sampler.sample(prompt, max_tokens=12, seed=3)
        again = await sampler.sample(prompt, max_tokens=12, seed=3)
        other = await sampler.sample(prompt, max_tokens=12, seed=4)
    assert again.ids == first.ids
    assert other.ids != first.ids
    assert len(first.ids) == len(first.logprobs) == 12
    assert all(-20 < value < 0 for value in first.logprobs)
    assert first.finish == "length"
    assert (first.usage.prompt, first.usage.completion, first.usage.requests) == (len(prompt), 12, 1)


async def test_a_turn_ends_with_its_stop_token(xml_server: VllmServer, qwen: ModuleType) -> None:
    tokenizer = qwen.tokenizer()
    renderer = Renderer(tokenizer)
    prompt = renderer.start(ASK, []).ids
    ids = [*tokenizer.encode("hm\n</think>\n\nShipped."), tokenizer.eos_token_id]
    async with sampler_of(xml_server, qwen) as sampler:
        sample = await sampler.sample_ids(prompt, ids)
    assert (list(sample.ids), sample.finish) == (ids, "stop")
    ledger = renderer.start(ASK, [])
    renderer.append_sample(ledger, sample)
    renderer.append_messages(ledger, [{"role": "user", "content": "Thanks."}])
    ledger.check()
    turn = Interpreter(tokenizer, "qwen3_xml", "qwen3").interpret(sample.ids, [])
    assert (turn.reasoning, turn.text, turn.problems) == ("hm\n", "\n\nShipped.", {})


async def test_cached_tokens_are_counted(xml_server: VllmServer, qwen: ModuleType) -> None:
    prompt = Renderer(qwen.tokenizer()).start([{"role": "user", "content": "order 77 " * 200}], []).ids
    async with sampler_of(xml_server, qwen) as sampler:
        first = await sampler.sample(prompt, max_tokens=1, seed=0)
        second = await sampler.sample(prompt, max_tokens=1, seed=1)
    total = Usage()
    total.add(first.usage)
    total.add(second.usage)
    assert first.usage.cached < len(prompt) / 2 < second.usage.cached <= len(prompt)
    assert total.prompt == 2 * len(prompt)


async def test_a_prompt_that_does_not_fit_is_a_fault(xml_server: VllmServer, qwen: ModuleType) -> None:
    async with sampler_of(xml_server, qwen) as sampler:
        with pytest.raises(SystemFault, match="maximum context length is 4096"):
            await sampler.sample([5] * 5000, max_tokens=1, seed=0)


def test_the_key_is_needed_and_hidden(xml_server: VllmServer) -> None:
    body = {"prompt": [1], "max_tokens": 1}
    assert httpx.post(xml_server.base_url + "/completions", json=body).status_code == 401
    server = psutil.Process(xml_server.pid)
    for process in (server, *server.children(recursive=True)):
        assert xml_server.api_key not in " ".join(process.cmdline())
    addresses = {c.laddr.ip for c in server.net_connections("tcp") if c.status == psutil.CONN_LISTEN}
    assert addresses == {"127.0.0.1"}


async def test_preflight_goes_through_the_server(xml_server: VllmServer, qwen: ModuleType) -> None:
    tokenizer = qwen.tokenizer()
    async with sampler_of(xml_server, qwen) as sampler:
        await check_server(Renderer(tokenizer), Interpreter(tokenizer, "qwen3_xml", "qwen3"), sampler)
        wrong = Interpreter(tokenizer, "hermes", "qwen3")
        with pytest.raises(SystemFault, match="did not come back from the server: the visible text is"):
            await check_server(Renderer(tokenizer), wrong, sampler)


def test_every_process_of_it_loaded_our_plugin(xml_server: VllmServer) -> None:
    log = xml_server.log.read_text()
    for process in ("MainProcess", "EngineCore"):
        assert f"stateward: {process}: " in log, log[:3000]
