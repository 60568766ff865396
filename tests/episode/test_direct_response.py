"""What a tool shows to the user directly stands in the ledger between its result and the policy's next turn."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stateward.episode import Environment, TokenPolicy
from stateward.outcome import Trial
from stateward.policy import Interpreter, Renderer
from stateward.policy.checkpoint import load_tokenizer
from stateward.policy.samplers.scripted import ScriptedSampler
from stateward.practice.policy import SHIPPED
from stateward.tasks.task import Task, ToolPolicy

pytestmark = pytest.mark.asyncio(loop_scope="module")

UID = "orders_ask.py:test_ask_which_order_then_cancel_blender"
TEMPLATES = Path(__file__).parents[1] / "policy" / "templates"
CALL = "<tool_call>\n<function=get_order>\n<parameter=order_id>\nORD-1173\n</parameter>\n</function>\n</tool_call>"


@pytest.mark.slow
@pytest.mark.parametrize("template", ["", "qwen35.jinja", "qwen38.jinja"])
async def test_in_the_ledger(
    environment: Environment, tasks: dict[str, Task], trial_of: Callable[[Task], Trial], template: str
) -> None:
    tokenizer = load_tokenizer(SHIPPED)
    policy = TokenPolicy(
        renderer=Renderer(tokenizer, (TEMPLATES / template).read_text() if template else None),
        interpreter=Interpreter(tokenizer, "qwen3_xml"),
        sampler=ScriptedSampler([CALL, "Goodbye. <DONE>"], tokenizer),
        fingerprint="script",
        max_model_len=8_192,
        max_tokens_per_turn=512,
    )
    shown = ToolPolicy(name="get_order", direct_response="It is: {item}")
    task = dataclasses.replace(tasks[UID], tools=(shown,))
    record: Any = await environment.runner(policy, keep_tokens=True).run(task, trial_of(task), seed=1)
    assert (record.finish, record.fault_cause, record.tool_errors) == ("done", "", 0)
    ids, mask = record.tokens["ids"], record.tokens["mask"]
    read = tokenizer.decode([i for i, m in zip(ids, mask, strict=True) if not m])
    sampled = tokenizer.decode([i for i, m in zip(ids, mask, strict=True) if m])
    answer, _, behind = read.partition("</tool_response>")
    assert "ORD-1173" in answer
    assert "assistant" in behind.partition("It is:")[0]
    assert "It is:" not in sampled
    assert "Goodbye." in sampled
