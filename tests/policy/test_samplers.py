"""The HTTP samplers against a real server that misbehaves on demand, and the scripted ones."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateward.config import EndpointConfig, SamplingConfig
from stateward.errors import SystemFault, UserError
from stateward.outcome import Usage
from stateward.policy import Turn
from stateward.policy.samplers.chat import ChatSampler, read_answer
from stateward.policy.samplers.http import Retry, open_client
from stateward.policy.samplers.scripted import ScriptedChat, ScriptedSampler
from stateward.policy.samplers.vllm import VllmSampler
from stateward.policy.thinking import ThinkingMarks

QUICK = Retry(attempts=4, deadline_seconds=20.0, first_wait=0.01, longest_wait=0.05)


class Endpoint:
    """A server that answers from a list: (status, headers, body), "drop" (close the connection), "hang", or parts of an
    answer that is never whole."""

    def __init__(self) -> None:
        self.answers: list[Any] = []
        self.requests: list[tuple[str, dict[str, Any], dict[str, str]]] = []
        self.closing = threading.Event()
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                endpoint.requests.append((self.path, body, dict(self.headers.items())))
                answer = endpoint.answers.pop(0)
                if answer == "drop":
                    self.connection.shutdown(socket.SHUT_RDWR)
                    self.close_connection = True
                    return
                if answer == "hang":
                    endpoint.closing.wait()
                    self.close_connection = True
                    return
                if isinstance(answer, list):  # parts of an answer, seconds between them
                    self.send_response(200)
                    self.send_header("content-length", "1000")
                    self.end_headers()
                    for part in answer:
                        self.wfile.write(part)
                        self.wfile.flush()
                        if endpoint.closing.wait(0.2):
                            break
                    self.close_connection = True
                    return
                status, headers, content = answer
                data = content if isinstance(content, bytes) else json.dumps(content).encode()
                self.send_response(status)
                for key, value in {"content-length": str(len(data)), **headers}.items():
                    self.send_header(key, value)
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_: object) -> None:
                pass  # a dropped connection is what was asked for

        self.server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True)
        self.thread.start()


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    made = Endpoint()
    yield made
    made.closing.set()
    made.server.shutdown()
    made.server.server_close()
    made.thread.join()


def chat_answer(message: dict[str, Any], finish: str = "stop") -> tuple[int, dict[str, str], dict[str, Any]]:
    usage = {
        "prompt_tokens": 10,
        "completion_tokens": 4,
        "prompt_tokens_details": {"cached_tokens": 8},
        "completion_tokens_details": {"reasoning_tokens": 3},
    }
    return 200, {}, {"choices": [{"message": message, "finish_reason": finish}], "usage": usage}


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


def chat(endpoint: Endpoint, **options: Any) -> ChatSampler:
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
async def test_passing_troubles_are_retried(endpoint: Endpoint, troubles: list[Any]) -> None:
    endpoint.answers = [*troubles, chat_answer({"content": "hello"})]
    sample = await ask(chat(endpoint, retry=QUICK))
    assert sample.turn == Turn(text="hello")
    assert len(endpoint.requests) == len(troubles) + 1
    assert sample.usage == Usage(requests=1, prompt=10, cached=8, completion=4, reasoning=3)


async def test_attempts_are_bounded(endpoint: Endpoint) -> None:
    endpoint.answers = [FAIL] * 10
    with pytest.raises(SystemFault, match=r"failed after 4 attempts .* HTTP 503: .*busy") as caught:
        await ask(chat(endpoint, kind="judge", retry=QUICK))
    assert caught.value.kind == "judge"
    assert len(endpoint.requests) == 4


@pytest.mark.parametrize("status", [400, 401, 404, 422])
async def test_our_own_mistakes_are_not_retried(endpoint: Endpoint, status: int) -> None:
    endpoint.answers = [(status, {}, {"error": "no such model"})]
    with pytest.raises(SystemFault, match=f"refused the request: HTTP {status}.*no such model"):
        await ask(chat(endpoint, retry=QUICK))
    assert len(endpoint.requests) == 1


async def test_the_deadline_covers_an_answer_that_never_comes(endpoint: Endpoint) -> None:
    endpoint.answers = [FAIL, "hang"]
    started = time.monotonic()
    with pytest.raises(SystemFault, match=r"failed after 2 attempts .*no answer within 0\.\d s"):
        await ask(chat(endpoint, retry=Retry(attempts=9, deadline_seconds=0.5, first_wait=0.01)))
    assert time.monotonic() - started < 30


async def test_an_endpoint_that_hangs_once_is_asked_again(endpoint: Endpoint) -> None:
    endpoint.answers = ["hang", chat_answer({"content": "hello"})]
    retry = Retry(attempts=2, attempt_seconds=0.5, deadline_seconds=60.0, first_wait=0.01)
    assert (await ask(chat(endpoint, retry=retry))).turn == Turn(text="hello")


async def test_the_deadline_covers_the_waits(endpoint: Endpoint) -> None:
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


async def test_chat_request_and_calls(endpoint: Endpoint, qwen: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
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
async def test_strange_answers_are_faults(endpoint: Endpoint, answer: Any, said: str) -> None:
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


async def test_parts_refusals_and_missing_counts(endpoint: Endpoint) -> None:
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


async def test_a_server_that_drips_is_given_up(endpoint: Endpoint) -> None:
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


async def sampled(endpoint: Endpoint, qwen: ModuleType, prompt: list[int]) -> Any:
    async with VllmSampler(
        endpoint.url, "key", SamplingConfig(), tokenizer=qwen.tokenizer(), model="policy", retry=QUICK
    ) as sampler:
        return await sampler.sample(prompt, max_tokens=5, seed=11)


async def test_vllm_sampler_sends_and_reads_tokens(endpoint: Endpoint, qwen: ModuleType) -> None:
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
async def test_vllm_sampler_trusts_nothing(
    endpoint: Endpoint, qwen: ModuleType, change: dict[str, Any], said: str
) -> None:
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
