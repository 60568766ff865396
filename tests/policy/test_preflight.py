"""What preflight refuses, and how it says so."""

from __future__ import annotations

import json
from types import ModuleType
from typing import Any

import pytest

from stateward.errors import SystemFault, UserError
from stateward.policy import Interpreter, Renderer
from stateward.policy.preflight import check_parsers, check_prompts


def test_long_prompts_are_refused_by_name_with_their_length() -> None:
    lengths: dict[str, int | SystemFault] = {f"a.py:test_{n}": n for n in (1, 300, 5, 200)}
    with pytest.raises(UserError) as caught:
        check_prompts(lengths, limit=100, setting="policy.max_prompt_tokens")
    text = str(caught.value)
    assert "2 of 4 tasks have a prompt of more than 100 tokens" in text
    assert "a.py:test_300: 300 tokens\n  a.py:test_200: 200 tokens" in text
    assert "test_1:" not in text
    assert "raise policy.max_prompt_tokens by 200 or more" in text
    assert check_prompts(lengths, limit=300, setting="policy.max_prompt_tokens") == 300
    assert check_prompts({}, limit=300, setting="policy.max_prompt_tokens") == 0


def test_a_long_list_is_cut() -> None:
    with pytest.raises(UserError, match=r"… and 5 more"):
        check_prompts({f"t{n}": 9 for n in range(25)}, limit=1, setting="policy.max_prompt_tokens")


def test_tasks_that_cannot_be_rendered_are_named(qwen: ModuleType) -> None:
    late: list[dict[str, Any]] = [{"role": "user", "content": "hi"}, {"role": "system", "content": "late"}]
    with pytest.raises(SystemFault) as fault:
        Renderer(qwen.tokenizer()).start(late, [])
    lengths = {"a.py:test_late": fault.value, "a.py:test_closed": SystemFault("sandbox", "no world"), "a.py:test_a": 5}
    with pytest.raises(UserError, match=r"1 of 3 tasks cannot be rendered.*\n  a.py:test_late: .*at the beginning"):
        check_prompts(lengths, limit=9, setting="policy.max_prompt_tokens")


PAIRS = [
    ("qwen3", "hermes", "qwen3", {}),
    ("qwen3", "hermes", "qwen3", {"enable_thinking": False}),
    ("qwen35", "qwen3_xml", "qwen3", {}),
    ("qwen35", "qwen3_coder", "qwen3", {}),
    ("qwen35", "qwen3_xml", "qwen3", {"enable_thinking": False}),
    ("qwen35", "qwen3_xml", None, {"enable_thinking": False}),
    ("qwen35", "qwen3_xml", "qwen3", {"preserve_thinking": True}),
    ("qwen38", "qwen3_coder", "qwen3", {}),
    ("qwen38", "qwen3_xml", "qwen3", {"reasoning_effort": "medium", "preserve_thinking": False}),
]
WRONG = [
    ("qwen3", "qwen3_xml", "qwen3", {}, "the calls are"),
    ("qwen35", "hermes", "qwen3", {}, "the visible text is"),
    ("qwen35", "qwen3_xml", None, {}, "the visible text is"),
]


def pair(qwen: ModuleType, template: str, parser: str, reasoning: str | None, kwargs: dict[str, Any]) -> Any:
    tokenizer = qwen.tokenizer(template)
    renderer = Renderer(tokenizer, template_kwargs=kwargs)
    return renderer, Interpreter(tokenizer, parser, reasoning, template_kwargs=kwargs)


@pytest.mark.timeout(900)
@pytest.mark.slow  # importing vLLM takes seconds
@pytest.mark.parametrize(("template", "parser", "reasoning", "kwargs"), PAIRS, ids=lambda v: json.dumps(v).strip('"'))
def test_right_parsers_pass(
    qwen: ModuleType, template: str, parser: str, reasoning: str | None, kwargs: dict[str, Any]
) -> None:
    check_parsers(*pair(qwen, template, parser, reasoning, kwargs))


@pytest.mark.timeout(900)
@pytest.mark.slow
@pytest.mark.parametrize(("template", "parser", "reasoning", "kwargs", "said"), WRONG)
def test_wrong_parsers_are_found(
    qwen: ModuleType, template: str, parser: str, reasoning: str | None, kwargs: dict[str, Any], said: str
) -> None:
    with pytest.raises(UserError, match=r"a known tool call did not come back from the parsers") as caught:
        check_parsers(*pair(qwen, template, parser, reasoning, kwargs))
    assert said in str(caught.value)
    assert "policy.tool_parser" in caught.value.why


@pytest.mark.timeout(900)
@pytest.mark.slow
def test_a_turn_that_would_not_stop_is_found(qwen: ModuleType) -> None:
    tokenizer = qwen.tokenizer("qwen35")
    interpreter = Interpreter(tokenizer, "qwen3_xml", "qwen3", stop_ids=[tokenizer.pad_token_id])
    with pytest.raises(UserError, match=r"ends a turn with '<\|im_end\|>', which is no stop token"):
        check_parsers(Renderer(tokenizer), interpreter)
