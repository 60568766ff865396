"""Samplers that say what a script says."""

from __future__ import annotations

from types import ModuleType

import pytest

from stateward.policy import Turn
from stateward.policy.samplers.scripted import ScriptedChat, ScriptedSampler


async def test_scripted_sampler(qwen: ModuleType) -> None:
    tokenizer = qwen.tokenizer()
    sampler = ScriptedSampler(["hello", "the order was shipped"], tokenizer)
    first = await sampler.sample([1], max_tokens=50, seed=0)
    assert tokenizer.decode(first.ids) == "hello<|im_end|>"
    assert (first.finish, set(first.logprobs)) == ("stop", {0.0})
    cut = await sampler.sample([1], max_tokens=2, seed=0)
    assert (len(cut.ids), cut.finish) == (2, "length")
    with pytest.raises(IndexError, match="only 2 turns"):
        await sampler.sample([1], max_tokens=2, seed=0)
    told = ScriptedSampler(lambda prompt, seed: f"{len(prompt)} {seed}", tokenizer)
    assert tokenizer.decode((await told.sample([1, 2], max_tokens=50, seed=7)).ids) == "2 7<|im_end|>"


async def test_scripted_chat() -> None:
    chat = ScriptedChat(["yes", Turn(text="no", reasoning="hm")])
    assert (await chat.chat([], max_tokens=1, seed=0)).turn == Turn(text="yes")
    assert (await chat.chat([], max_tokens=1, seed=0)).turn == Turn(text="no", reasoning="hm")
    echo = ScriptedChat(lambda messages: messages[-1]["content"].upper())
    assert (await echo.chat([{"role": "user", "content": "hi"}], max_tokens=1, seed=0)).turn == Turn(text="HI")
