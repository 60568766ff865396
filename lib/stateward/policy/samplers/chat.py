"""Any OpenAI-compatible chat endpoint: the simulated user, the judge, or an API model as the policy."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from types import TracebackType
from typing import Any

from stateward.config import EndpointConfig
from stateward.config.simulator import SIMULATOR_NAME, read_address
from stateward.errors import SystemFault, UserError
from stateward.outcome import Usage
from stateward.policy.arguments import read_arguments
from stateward.policy.calls import new_call_id
from stateward.policy.samplers.http import Refused, Retry, open_client, post_json
from stateward.policy.thinking import told_apart
from stateward.policy.turn import ContextFull, Sample, ToolCall, Turn

#: Fields of a message that an endpoint may refuse; reasoning is a model's own and is not sent back.
_SENT = ("role", "content", "name", "tool_calls", "tool_call_id")

#: How hosts say that a conversation is longer than the model's context: OpenAI's code, then the words of OpenAI, vLLM
#: and most others, of Anthropic, and of Google.
_FULL = re.compile(
    r"context_length_exceeded|maximum context length|prompt is too long|exceeds the maximum number of tokens", re.I
)

#: Reasons to finish with which an answer is not one.
_CUT = {"content_filter": "its content filter", "error": "an error of the model's host", "abort": "it was aborted"}


class ChatSampler:
    """A `ChatModel` behind a chat endpoint; an async context manager that owns the connection.

    Args:
        config: where it is and how it samples; the key is read from the environment variable it names. With
            `kind: simulator` address, key and name are those of the model that is served beside the stage.
        kind: of the fault that is raised when it fails: ``sampler``, ``user`` or ``judge``.

    Raises:
        UserError: no address or model is given, the key's environment variable is not set, or nothing serves the
            simulator's model.
    """

    def __init__(self, config: EndpointConfig, *, kind: str = "sampler", retry: Retry | None = None) -> None:
        base_url, model, key = _reached(config)
        self._client = open_client(base_url, key)
        self.name, self.base_url = model, base_url
        self._config, self._kind = config, kind
        attempts = config.max_retries + 1
        self._retry = retry or Retry(
            attempts=attempts,
            attempt_seconds=config.timeout_seconds,
            deadline_seconds=attempts * config.timeout_seconds,
        )

    async def __aenter__(self) -> ChatSampler:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.aclose()

    async def chat(
        self, messages: list[dict[str, Any]], *, tools: list[dict[str, Any]] | None = None, max_tokens: int, seed: int
    ) -> Sample:
        """One answer as an interpreted turn, without token ids.

        Raises:
            SystemFault: of the endpoint's kind; `ContextFull` if it says that the conversation has grown too long.
        """
        payload: dict[str, Any] = {
            "model": self.name,
            "messages": [_wire(message) for message in messages],
            "temperature": self._config.temperature,
            "max_tokens": max_tokens,
            "seed": seed,
            **({"tools": tools} if tools else {}),
            **self._config.extra,
        }
        payload = {name: value for name, value in payload.items() if value is not None}
        try:
            body = await post_json(self._client, "chat/completions", payload, retry=self._retry, kind=self._kind)
        except Refused as refused:
            if _FULL.search(refused.cause):
                raise ContextFull(refused.kind, refused.cause) from refused
            raise
        return read_answer(body, self._kind)


def _reached(config: EndpointConfig) -> tuple[str, str, str]:
    """Address, model and key of an endpoint."""
    if config.kind == "simulator":
        served = read_address(os.environ)
        return served.base_url, SIMULATOR_NAME, served.api_key
    if not config.base_url or not config.model:
        raise UserError(
            f"a chat endpoint needs base_url and model; got {config.base_url!r} and {config.model!r}",
            do="set both under the endpoint, e.g. base_url=http://host:8000/v1 model=NAME",
        )
    key = os.environ.get(config.api_key_env, "") if config.api_key_env else ""
    if config.api_key_env and not key:
        raise UserError(
            f"the environment variable {config.api_key_env} is not set",
            f"the endpoint {config.base_url} takes its key from it",
            f"export {config.api_key_env}=… in the shell that submits",
        )
    return config.base_url, config.model, key


def read_answer(body: dict[str, Any], kind: str) -> Sample:
    """The answer of a chat endpoint as an interpreted turn. Raises SystemFault(kind) if it is not one."""
    try:
        choice = body["choices"][0]
        finish = choice.get("finish_reason") or "stop"
        cut = _CUT.get(finish)
        turn, usage = _turn(choice["message"], finish), _usage(body)
    except (KeyError, IndexError, TypeError, AttributeError, ValueError, OverflowError) as error:
        raise SystemFault(
            kind, f"the endpoint's answer is no chat completion ({error!r}): {json.dumps(body)[:300]}"
        ) from error
    if cut:
        raise SystemFault(kind, f"the endpoint cut the answer: {cut}")
    return Sample(finish="length" if finish == "length" else "stop", usage=usage, turn=turn)


def _wire(message: dict[str, Any]) -> dict[str, Any]:
    out = {key: message[key] for key in _SENT if message.get(key) is not None}
    out.setdefault("content", "")
    if calls := out.pop("tool_calls", None):
        out["tool_calls"] = [_wire_call(call) for call in calls]
    return out


def _wire_call(call: dict[str, Any]) -> dict[str, Any]:
    function = dict(call["function"])
    if not isinstance(function.get("arguments"), str):
        function["arguments"] = json.dumps(function.get("arguments") or {}, ensure_ascii=False)
    return {**call, "function": function}


def _turn(message: dict[str, Any], finish: str) -> Turn:
    problems: Counter[str] = Counter()
    calls = []
    for call in message.get("tool_calls") or ():
        function = call["function"]
        name, raw = str(function.get("name") or ""), function.get("arguments") or "{}"
        value, error = read_arguments(name, raw if isinstance(raw, str) else json.dumps(raw))
        problems["bad_arguments"] += bool(error)
        # The answer to a call names its id, which some endpoints leave out.
        calls.append(ToolCall(id=str(call.get("id") or new_call_id()), name=name, arguments=value, error=error))
    problems["truncated"] += finish == "length"
    reasoning = _text(message.get("reasoning_content") or message.get("reasoning") or "")
    said = _text(message.get("content") or message.get("refusal") or "")
    if not reasoning:  # otherwise the endpoint has split it off, and marks in the rest are what the model talks about
        reasoning, said = told_apart(said)
    return Turn(
        reasoning=reasoning,
        text=said,
        calls=tuple(calls),
        problems=dict(+problems),
    )


def _text(content: Any) -> str:
    """A message's text; some endpoints send it in parts."""
    return content if isinstance(content, str) else "".join(part["text"] for part in content if part["type"] == "text")


def _usage(body: dict[str, Any]) -> Usage:
    """What the endpoint says it counted; whatever it leaves out is 0."""
    usage = body.get("usage") or {}
    return Usage(
        requests=1,
        prompt=_count(usage.get("prompt_tokens")),
        cached=_count((usage.get("prompt_tokens_details") or {}).get("cached_tokens")),
        completion=_count(usage.get("completion_tokens")),
        reasoning=_count((usage.get("completion_tokens_details") or {}).get("reasoning_tokens")),
    )


def _count(value: Any) -> int:
    """A number of tokens. ValueError for one that no model counts to and no column of a shard holds."""
    number = int(value or 0)
    if not 0 <= number < 1 << 31:
        raise ValueError(f"{str(value)[:20]} is no number of tokens")
    return number
