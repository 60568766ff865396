"""The simulated user on a model: what counts as its message, and what ends the conversation."""

from __future__ import annotations

from typing import Any

import pytest

from stateward.episode.users import ModelUser, UserReply
from stateward.errors import SystemFault
from stateward.policy.samplers.chat import read_answer

ASKED = [{"role": "assistant", "content": "Which one?"}]


async def reply(content: str, finish: str = "stop") -> UserReply:
    class Model:
        async def chat(self, messages: Any, **options: Any) -> Any:
            return read_answer({"choices": [{"finish_reason": finish, "message": {"content": content}}]}, "user")

    return await ModelUser(model=Model(), max_tokens=64).reply(ASKED, "red", 1)


@pytest.mark.parametrize(
    ("content", "text", "done"),
    [
        ("The red one.", "The red one.", False),
        ("<think>\nNot <DONE> yet.\n</think>\n\nThe red one.", "The red one.", False),
        ("No <DONE> yet.</think>The red one.", "The red one.", False),  # the template opened the thinking
        ("<think>So that is it.</think>\n<DONE>", "Thank you.", True),
        ("That is all, thanks. <DONE>\n", "That is all, thanks.", True),
        ("Shall I write <DONE> now?", "Shall I write <DONE> now?", False),
    ],
)
async def test_thinking_is_not_said_and_done_stands_at_the_end(content: str, text: str, done: bool) -> None:
    said = await reply(content)
    assert (said.text, said.done) == (text, done)


@pytest.mark.parametrize(
    ("content", "finish", "cause"),
    [
        ("The red one, and al", "length", "cut at 64 tokens: raise episode.user.max_tokens"),
        ("<think>Which one was it", "stop", "empty answer"),
    ],
)
async def test_an_answer_without_an_end_is_a_fault(content: str, finish: str, cause: str) -> None:
    with pytest.raises(SystemFault, match=cause) as caught:
        await reply(content, finish)
    assert caught.value.kind == "user"
