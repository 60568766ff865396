"""Requests to a chat endpoint, against a real server that misbehaves on demand."""

from __future__ import annotations

import json
import socket
import time
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateward.config import EndpointConfig
from stateward.errors import SystemFault, UserError
from stateward.outcome import Usage
from stateward.policy import Turn
from stateward.policy.samplers.chat import ChatSampler, read_answer
from stateward.policy.samplers.http import Retry, open_client
from stateward.policy.turn import ContextFull

QUICK = Retry(attempts=4, deadline_seconds=20.0, first_wait=0.01, longest_wait=0.05)


def chat_answer(message: dict[str, Any], finish: str = "stop") -> tuple[int, dict[str, str], dict[str, Any]]:
    usage = {
        "prompt_tokens": 10,
        "completion_tokens": 4,
        "prompt_tokens_details": {"cached_tokens": 8},
        "completion_tokens_details": {"reasoning_tokens": 3},
    }
    return 200, {}, {"choices": [{"message": message, "finish_reason": finish}], "usage": usage}


def chat(endpoint: Any, **options: Any) -> ChatSampler:
    return ChatSampler(EndpointConfig(kind="chat", base_url=endpoint.url, model="m", temperature=0.5), **options)


async def ask(sampler: ChatSampler, messages: list[dict[str, Any]] | None = None, **more: Any) -> Any:
    async with sampler:
        return await sampler.chat(messages or [{"role": "user", "content": "hi"}], max_tokens=9, seed=3, **more)


FAIL = (503, {}, {"error": "busy"})


@pytest.mark.parametrize(
    "troubles",
    [
        [FAIL],
        [(429, {"retry-after": "0"}, {})],
        ["drop"],
        [(500, {}, b"<html>")],
        [(408, {}, {}), "drop", FAIL],
        [[b'{"choices": [']],
        [(200, {}, b'{"choices": [')],
        [(200, {}, b"<html>")],
        [(200, {}, b"[" * 100_000)],
        [(200, {"content-encoding": "gzip"}, b"no gzip")],
        [(200, {}, {"error": {"code": 502, "message": "the model's host is down"}})],
    ],
    ids=[
        *("503", "429", "closed", "500", "three in a row", "half a body", "half a JSON", "a page", "nested"),
        *("not compressed", "an error under 200"),
    ],
)
async def test_passing_troubles_are_retried(endpoint: Any, troubles: list[Any]) -> None:
    endpoint.answers = [*troubles, chat_answer({"content": "hello"})]
    sample = await ask(chat(endpoint, retry=QUICK))
    assert sample.turn == Turn(text="hello")
    assert len(endpoint.requests) == len(troubles) + 1
    assert sample.usage == Usage(requests=1, prompt=10, cached=8, completion=4, reasoning=3)


async def test_attempts_are_bounded(endpoint: Any) -> None:
    endpoint.answers = [FAIL] * 10
    with pytest.raises(SystemFault, match=r"failed after 4 attempts .* HTTP 503: .*busy") as caught:
        await ask(chat(endpoint, kind="judge", retry=QUICK))
    assert caught.value.kind == "judge"
    assert len(endpoint.requests) == 4


@pytest.mark.parametrize("status", [400, 401, 404, 422])
async def test_our_own_mistakes_are_not_retried(endpoint: Any, status: int) -> None:
    endpoint.answers = [(status, {}, {"error": "no such model"})]
    with pytest.raises(SystemFault, match=f"refused the request: HTTP {status}.*no such model"):
        await ask(chat(endpoint, retry=QUICK))
    assert len(endpoint.requests) == 1


@pytest.mark.parametrize(
    "error",
    [
        {"code": "context_length_exceeded", "message": "Too many tokens."},
        {"message": "'max_tokens' is too large: 160. This model's maximum context length is 2048 tokens and so on"},
        {"message": "prompt is too long: 215000 tokens > 200000 maximum"},
    ],
)
async def test_a_conversation_that_has_grown_too_long_is_told_apart(endpoint: Any, error: dict[str, Any]) -> None:
    endpoint.answers = [(400, {}, {"error": error})]
    with pytest.raises(ContextFull, match="refused the request: HTTP 400"):
        await ask(chat(endpoint, retry=QUICK))


async def test_the_deadline_covers_an_answer_that_never_comes(endpoint: Any) -> None:
    endpoint.answers = [FAIL, "hang"]
    started = time.monotonic()
    with pytest.raises(SystemFault, match=r"failed after 2 attempts .*no answer within 0\.\d s"):
        await ask(chat(endpoint, retry=Retry(attempts=9, deadline_seconds=0.5, first_wait=0.01)))
    assert time.monotonic() - started < 30


async def test_an_endpoint_that_hangs_once_is_asked_again(endpoint: Any) -> None:
    endpoint.answers = ["hang", chat_answer({"content": "hello"})]
    retry = Retry(attempts=2, attempt_seconds=0.5, deadline_seconds=60.0, first_wait=0.01)
    assert (await ask(chat(endpoint, retry=retry))).turn == Turn(text="hello")


async def test_the_deadline_covers_the_waits(endpoint: Any) -> None:
    endpoint.answers = [(429, {"retry-after": "30"}, {})] * 3
    started = time.monotonic()
    with pytest.raises(SystemFault, match="HTTP 429"):
        await ask(chat(endpoint, retry=Retry(attempts=9, deadline_seconds=0.3)))
    assert time.monotonic() - started < 10
    assert len(endpoint.requests) == 1


async def test_nobody_listens() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/v1"
        config = EndpointConfig(kind="chat", base_url=url, model="m")
        with pytest.raises(SystemFault, match=r"failed after 4 attempts.*ConnectError"):
            await ask(ChatSampler(config, retry=QUICK))


def test_waits_grow_and_honour_the_server() -> None:
    retry = Retry(first_wait=1.0, longest_wait=8.0)
    for attempt, least in enumerate([1, 2, 4, 8, 8], start=1):
        assert least <= retry.wait(attempt, None) <= 1.5 * least
    assert retry.wait(1, "5") == 5.0
    assert retry.wait(1, "500") == 8.0
    assert retry.wait(1, "Wed, 21 Oct 2026 07:28:00 GMT") <= 1.5


async def test_chat_request_and_calls(endpoint: Any, qwen: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_KEY", "secret-7")
    calls = [
        {"id": "c1", "type": "function", "function": {"name": "find", "arguments": '{"id": "A-1"}'}},
        {"id": "c2", "type": "function", "function": {"name": "find", "arguments": '{"id": '}},
        {"id": "c3", "type": "function", "function": {"name": "find", "arguments": "[1]"}},
    ]
    endpoint.answers = [chat_answer({"content": None, "reasoning": "hm", "tool_calls": calls}, "length")]
    tools = [qwen.tool("find", {"id": {"type": "string"}})]
    sent = [
        {"role": "user", "content": "hi"},
        {
            "role": "assistant",
            "content": None,
            "reasoning_content": "private",
            "tool_calls": [{"id": "c0", "type": "function", "function": {"name": "find", "arguments": {"id": "ä"}}}],
        },
        {"role": "tool", "tool_call_id": "c0", "content": "none"},
    ]
    config = EndpointConfig(kind="chat", base_url=endpoint.url, model="m", temperature=0.5, api_key_env="SOME_KEY")
    sample = await ask(ChatSampler(config), sent, tools=tools)
    path, body, headers = endpoint.requests[0]
    assert path == "/v1/chat/completions"
    assert headers["Authorization"] == "Bearer secret-7"
    assert {k: body[k] for k in ("model", "temperature", "max_tokens", "seed", "tools")} == {
        "model": "m",
        "temperature": 0.5,
        "max_tokens": 9,
        "seed": 3,
        "tools": tools,
    }
    assert "private" not in json.dumps(body)
    assert body["messages"][1]["tool_calls"][0]["function"]["arguments"] == '{"id": "ä"}'
    assert sample.finish == "length"
    assert sample.turn.reasoning == "hm"
    assert [(c.id, c.arguments, bool(c.error)) for c in sample.turn.calls] == [
        ("c1", {"id": "A-1"}, False),
        ("c2", {}, True),
        ("c3", {}, True),
    ]
    assert sample.turn.problems == {"bad_arguments": 2, "truncated": 1}


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((200, {}, {"choices": []}), "no chat completion"),
        ((200, {}, {"choices": [{"message": None}]}), "no chat completion"),
        ((200, {}, {"choices": ["text"]}), "no chat completion"),
        (chat_answer({"content": "x", "tool_calls": [None]}), "no chat completion"),
        (chat_answer({"content": 5}), "no chat completion"),
        ((200, {}, {"choices": [{"message": {"content": "x"}}], "usage": [1]}), "no chat completion"),
        (chat_answer({"content": ""}, "content_filter"), "content filter"),
        (chat_answer({"content": ""}, "error"), "an error of the model's host"),
    ],
)
async def test_strange_answers_are_faults(endpoint: Any, answer: Any, said: str) -> None:
    endpoint.answers = [answer]
    with pytest.raises(SystemFault, match=said) as caught:
        await ask(chat(endpoint, kind="user"))
    assert caught.value.kind == "user"


known_names = st.sampled_from(
    [
        *("content", "refusal", "reasoning", "tool_calls", "id", "function", "name", "arguments", "type", "text"),
        *("prompt_tokens", "completion_tokens", "prompt_tokens_details", "cached_tokens"),
    ]
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(known_names, inner, max_size=4),
    max_leaves=12,
)


@given(json_values, json_values, json_values)
def test_an_answer_is_read_or_is_no_chat_completion(message: Any, usage: Any, finish: Any) -> None:
    """Whatever an endpoint sends: nothing but a turn or a fault of its kind comes out."""
    body = {"choices": [{"message": message, "finish_reason": finish}], "usage": usage}
    try:
        sample = read_answer(body, "judge")
    except SystemFault:
        return
    assert sample.turn
    json.dumps([sample.turn.text, sample.turn.reasoning, [c.id + c.name for c in sample.turn.calls]])
    assert isinstance(sample.turn.text + sample.turn.reasoning, str)
    sample.usage.add(Usage(requests=1))


async def test_parts_refusals_and_missing_counts(endpoint: Any) -> None:
    parts = [{"type": "text", "text": "Hel"}, {"type": "image"}, {"type": "text", "text": "lo"}]
    call = {"type": "function", "function": {"name": "find"}}
    endpoint.answers = [
        (
            200,
            {},
            {"choices": [{"message": {"content": parts}}], "usage": {"prompt_tokens": 4, "completion_tokens": None}},
        ),
        (200, {}, {"choices": [{"message": {"content": None, "refusal": "No."}, "finish_reason": None}]}),
        (
            200,
            {},
            {"choices": [{"message": {"tool_calls": [call, call]}, "finish_reason": "tool_calls"}], "usage": None},
        ),
    ]
    first, second, third = [await ask(chat(endpoint, retry=QUICK)) for _ in range(3)]
    assert (first.turn.text, first.usage) == ("Hello", Usage(requests=1, prompt=4))
    assert (second.turn.text, second.finish, second.usage) == ("No.", "stop", Usage(requests=1))
    assert [(c.name, c.arguments) for c in third.turn.calls] == [("find", {})] * 2
    assert len({c.id for c in third.turn.calls} - {""}) == 2


async def test_a_server_that_drips_is_given_up(endpoint: Any) -> None:
    """Each part comes in time, the whole never does."""
    endpoint.answers = [[b" "] * 100, chat_answer({"content": "hello"})]
    retry = Retry(attempts=2, attempt_seconds=1.0, deadline_seconds=60.0, first_wait=0.01)
    assert (await ask(chat(endpoint, retry=retry))).turn == Turn(text="hello")


def test_only_endpoints_outside_go_through_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert not any(open_client("http://node7:8000/v1", "")._mounts.values())
    assert any(open_client("https://api.example.org/v1", "")._mounts.values())


def test_chat_configuration_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="needs base_url and model"):
        ChatSampler(EndpointConfig(kind="chat", model="m"))
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    with pytest.raises(UserError, match="NO_SUCH_KEY is not set"):
        ChatSampler(EndpointConfig(kind="chat", base_url="http://h/v1", model="m", api_key_env="NO_SUCH_KEY"))
