"""Templates under which a conversation cannot grow are refused, with the token, the text and what to do."""

from __future__ import annotations

from types import ModuleType

import pytest

from stateward.errors import SystemFault, UserError
from stateward.policy import Renderer, Sample

TURN = "{{ '<|im_start|>' + m.role + '\\n' + (m.content or '') + '<|im_end|>\\n' }}"
GENERATE = "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"

REWRITING = {
    "counts its messages": "{{ 'messages: ' + (messages | length | string) + '\\n' }}"
    "{% for m in messages %}" + TURN + "{% endfor %}" + GENERATE,
    "moves the system text to the last message": "{% for m in messages %}{% if m.role != 'system' %}"
    "{% if loop.last and messages[0].role == 'system' %}{{ messages[0].content }}{% endif %}"
    + TURN
    + "{% endif %}{% endfor %}"
    + GENERATE,
    "forgets old tool results": "{% for m in messages %}{% if m.role != 'tool' or loop.revindex < 3 %}"
    + TURN
    + "{% endif %}{% endfor %}"
    + GENERATE,
}


@pytest.mark.parametrize("name", [n for n in REWRITING if "system" not in n])
def test_rewriting_templates_are_refused(qwen: ModuleType, name: str) -> None:
    with pytest.raises(UserError) as caught:
        Renderer(qwen.tokenizer(), REWRITING[name])
    text = str(caught.value)
    assert "cannot be extended" in text
    assert "first different token: index" in text
    assert "expected" in text
    assert "do:  use a template that renders every message the same" in text


def test_a_system_text_that_moves_is_found_when_there_is_one(qwen: ModuleType) -> None:
    renderer = Renderer(qwen.tokenizer(), REWRITING["moves the system text to the last message"])
    renderer.start([{"role": "user", "content": "hi"}], [])
    with pytest.raises(SystemFault, match="cannot be extended: after a assistant message") as caught:
        renderer.start([{"role": "system", "content": "Be kind."}, {"role": "user", "content": "hi"}], [])
    assert caught.value.kind == "render"


def test_tools_that_move_are_found_when_there_are_some(qwen: ModuleType) -> None:
    moving = (
        "{% for m in messages %}{% if loop.last and tools %}{{ tools | tojson }}{% endif %}"
        + TURN
        + "{% endfor %}"
        + GENERATE
    )
    renderer = Renderer(qwen.tokenizer(), moving)
    with pytest.raises(SystemFault, match="cannot be extended"):
        renderer.start([{"role": "user", "content": "hi"}], [qwen.tool("find", {})])
    behind = (
        "{% for m in messages %}"
        + TURN
        + "{% if m.role == 'tool' and tools %}{{ 'hint' }}{% endif %}{% endfor %}"
        + GENERATE
    )
    renderer = Renderer(qwen.tokenizer(), behind)
    renderer.start([{"role": "user", "content": "hi"}], [])
    with pytest.raises(SystemFault, match="renders a tool message differently when there are tools"):
        renderer.start([{"role": "user", "content": "hi"}], [qwen.tool("find", {})])


def test_an_observation_that_changes_its_anchor_is_a_fault(qwen: ModuleType) -> None:
    spiteful = (
        "{% for m in messages %}{% if messages[-1].content == 'spite' %}{{ 'x' }}{% endif %}"
        + TURN
        + "{% endfor %}"
        + GENERATE
    )
    renderer = Renderer(qwen.tokenizer(), spiteful)
    ledger = renderer.start([{"role": "user", "content": "hi"}], [])
    renderer.append_sample(ledger, Sample(ids=(40, renderer.end_of_turn)))
    with pytest.raises(SystemFault, match="rewrote the anchor") as caught:
        renderer.append_messages(ledger, [{"role": "user", "content": "spite"}])
    assert "first different token: index 0" in caught.value.cause
    assert len(ledger.segments) == 2


@pytest.mark.parametrize(
    ("template", "said"),
    [
        (
            "{% for m in messages %}{{ m.role + ': ' + m.content + '\\n' }}{% endfor %}" + GENERATE,
            "holds no special token",
        ),
        ("{% for m in messages %}" + TURN + "{% endfor %}", "writes no generation prompt"),
        ("{{ raise_exception('no') }}", "refused a conversation of roles"),
        ("{% for m in messages %}{{ m.nothing.at_all }}{% endfor %}", "refused a conversation of roles"),
    ],
)
def test_unusable_templates_are_refused(qwen: ModuleType, template: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        Renderer(qwen.tokenizer(), template)


def test_a_tokenizer_without_template_is_refused(qwen: ModuleType) -> None:
    class Bare:
        chat_template = None

    with pytest.raises(UserError, match="no chat template"):
        Renderer(Bare())
