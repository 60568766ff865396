"""The interpreter: sampled token ids to reasoning, visible text and tool calls, on vLLM's own parsers.

The ids are turned into text as vLLM's engine does it (its stop token left out, special tokens kept, incomplete UTF-8 at
the end withheld), and the text goes through the same parser object that vLLM's chat endpoint builds from
``--tool-call-parser`` and ``--reasoning-parser``. So an agent that was trained here does the same behind a vLLM server.
What the server would drop in silence (a call that cannot be read, a call inside thinking) is counted and told.
"""

from __future__ import annotations

import json
import re
import uuid
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

from stateward.errors import UserError, nearest
from stateward.policy.arguments import inline_refs, unreadable
from stateward.policy.checkpoint import stop_tokens
from stateward.policy.template import THINK_END, THINK_START
from stateward.policy.turn import ToolCall, Turn

CALL_START, CALL_END = "<tool_call>", "</tool_call>"
_NAME = re.compile(r'<function=([^>\n]+)|"name"\s*:\s*"([^"]+)"')


class Interpreter:
    """Interprets one policy's turns. It keeps no conversation, so one serves many episodes of a process.

    Args:
        tokenizer: of the checkpoint (`load_tokenizer`).
        tool_parser: a name of vLLM's tool parser registry, e.g. ``qwen3_xml``, ``qwen3_coder`` or ``hermes``.
        reasoning_parser: a name of vLLM's reasoning parser registry, e.g. ``qwen3``; None: it does not think.
        template_kwargs: what the renderer gives to the template; ``enable_thinking`` matters to the reasoning parser.
        stop_ids: ids that end a turn; those of the tokenizer and of the generation config beside it by default.

    Raises:
        UserError: vLLM is not installed, does not know a parser's name, or the tokenizer lacks the parser's tokens.
    """

    def __init__(
        self,
        tokenizer: Any,
        tool_parser: str,
        reasoning_parser: str | None = None,
        *,
        template_kwargs: dict[str, Any] | None = None,
        stop_ids: Collection[int] | None = None,
    ) -> None:
        self._parser_class, self._tokenizer = _load_parser(tokenizer, tool_parser, reasoning_parser)
        self._thinks = bool(reasoning_parser)
        self._kwargs = dict(template_kwargs or {})
        self.stop_ids = frozenset(stop_tokens(tokenizer) if stop_ids is None else stop_ids)
        self._tools: dict[str, tuple[list[Any], dict[str, dict[str, Any]]]] = {}
        # A decoder may treat a turn's first token by what stands before it; this always stands before it.
        self._context = list(tokenizer.encode("<|im_start|>assistant\n", add_special_tokens=False))

    def text(self, ids: Sequence[int]) -> str:
        """Text of sampled ids as vLLM's engine would give it to its parsers."""
        from tokenizers.decoders import DecodeStream

        kept = ids[:-1] if ids and ids[-1] in self.stop_ids else ids
        backend = self._tokenizer._tokenizer
        stream = DecodeStream(ids=self._context, skip_special_tokens=False)
        parts = []
        for token in kept:
            try:
                parts.append(stream.step(backend, int(token)) or "")
            except Exception as error:  # the library raises no narrower type
                if not str(error).startswith("Invalid prefix encountered"):
                    raise
                # Bytes that are no UTF-8 break the stream's prefix; vLLM starts a new one, and so do we.
                stream = DecodeStream(skip_special_tokens=False)
                parts.append(stream.step(backend, int(token)) or "")
        return "".join(parts)

    def interpret(self, ids: Sequence[int], tools: Sequence[dict[str, Any]]) -> Turn:
        """One sampled turn, stop token included if it was sampled.

        Args:
            tools: entries of a chat request's ``tools``; their schemas type the arguments.
        """
        text = self.text(ids)
        parsed_tools, schemas = self._prepared(tools)
        request = _request(parsed_tools)
        parser = self._parser_class(self._tokenizer, parsed_tools or None, chat_template_kwargs=dict(self._kwargs))
        reasoning, content, raw_calls = parser.parse(
            text, request, enable_auto_tools=True, model_output_token_ids=list(ids)
        )
        problems: Counter[str] = Counter()
        calls = [self._call(raw.name, raw.arguments, schemas, problems) for raw in raw_calls or ()]
        calls += self._lost_calls(text, len(calls), bool(tools), problems)
        if not ids or ids[-1] not in self.stop_ids:
            problems["truncated"] += 1
        if self._thinking_on and not content and not calls and THINK_END not in text:
            problems["unterminated_thinking"] += 1
        return Turn(reasoning=reasoning or "", text=content or "", calls=tuple(calls), problems=dict(problems))

    @property
    def _thinking_on(self) -> bool:
        return self._thinks and self._kwargs.get("enable_thinking", True) is not False

    def _call(
        self, name: str, arguments: str | None, schemas: dict[str, dict[str, Any]], problems: Counter[str]
    ) -> ToolCall:
        call_id = _call_id()
        try:
            value = json.loads(arguments or "{}")
        except json.JSONDecodeError as error:
            problems["bad_arguments"] += 1
            return ToolCall(id=call_id, name=name, error=f"the arguments of {name} are not valid JSON: {error}")
        if not isinstance(value, dict):
            problems["bad_arguments"] += 1
            return ToolCall(id=call_id, name=name, error=f"the arguments of {name} must be an object, got {value!r}")
        if name not in schemas:
            problems["unknown_tool"] += 1
            unknown = f"there is no tool {name!r}; the tools are {', '.join(sorted(schemas)) or 'none'}"
            return ToolCall(id=call_id, name=name, arguments=value, error=unknown)
        wrong = unreadable(value, schemas[name])
        if wrong:
            problems["bad_arguments"] += 1
        return ToolCall(id=call_id, name=name, arguments=value, error=f"{name}: {'; '.join(wrong)}" if wrong else "")

    def _lost_calls(self, text: str, parsed: int, has_tools: bool, problems: Counter[str]) -> list[ToolCall]:
        """Calls that the parser could not read become errors; calls inside thinking are counted."""
        thought, said = self._split(text)
        inside = thought.count(CALL_START)
        if inside:
            problems["call_in_thinking"] += inside
        regions = said.split(CALL_START)[1:]
        lost = len(regions) - parsed if has_tools else 0
        if lost <= 0:
            return []
        problems["bad_arguments"] += lost
        unread = [region for region in regions if not _readable(region)] or regions
        return [_unread_call(region) for region in unread[-lost:]]

    def _split(self, text: str) -> tuple[str, str]:
        if not self._thinking_on:
            return "", text
        thought, end, said = text.partition(THINK_END)
        if end and CALL_START not in thought:
            return thought, said
        # vLLM takes a call as the end of thinking that was never closed: what follows is read, and counted as inside.
        at = text.find(CALL_START)
        return (text, "") if at < 0 else (thought, text[at:])

    def _prepared(self, tools: Sequence[dict[str, Any]]) -> tuple[list[Any], dict[str, dict[str, Any]]]:
        key = json.dumps(tools, sort_keys=True, default=str)
        if key not in self._tools:
            from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionToolsParam

            plain = [
                {
                    **tool,
                    "function": {
                        **tool["function"],
                        "parameters": inline_refs(tool["function"].get("parameters") or {}),
                    },
                }
                for tool in tools
            ]
            schemas = {tool["function"]["name"]: tool["function"]["parameters"] for tool in plain}
            self._tools[key] = ([ChatCompletionToolsParam.model_validate(tool) for tool in plain], schemas)
        return self._tools[key]


def _load_parser(tokenizer: Any, tool_parser: str, reasoning_parser: str | None) -> tuple[Any, Any]:
    """vLLM's parser class for these names, and the tokenizer with its vocabulary cached as vLLM does it."""
    try:
        from vllm.parser import ParserManager
        from vllm.reasoning import ReasoningParserManager
        from vllm.tokenizers.hf import get_cached_tokenizer
        from vllm.tool_parsers import ToolParserManager
    except ImportError as error:
        raise UserError(
            f"vLLM cannot be imported: {error}",
            "turns are interpreted by vLLM's own parsers, so that training and serving agree",
            "install the practice or cluster requirements (make setup)",
        ) from error
    for kind, name, manager in (
        ("policy.tool_parser", tool_parser, ToolParserManager),
        ("policy.reasoning_parser", reasoning_parser, ReasoningParserManager),
    ):
        if name and name not in manager.list_registered():
            raise UserError(
                f"{kind}={name!r} is not a parser of the installed vLLM",
                "a wrong parser parses nothing, and every tool call would be lost",
                nearest(name, manager.list_registered()),
            )
    cached = get_cached_tokenizer(tokenizer)
    parser_class = ParserManager.get_parser(
        tool_parser_name=tool_parser, reasoning_parser_name=reasoning_parser, enable_auto_tools=True
    )
    try:
        parser_class(cached)
    except (RuntimeError, ValueError, TypeError) as error:
        raise UserError(
            f"the parsers {tool_parser!r} and {reasoning_parser!r} cannot work with this tokenizer: {error}",
            "they look for tokens that it does not have",
            "take the parsers that the checkpoint's model card names",
        ) from error
    return parser_class, cached


def _request(tools: list[Any]) -> Any:
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest

    request = ChatCompletionRequest(messages=[{"role": "user", "content": ""}], skip_special_tokens=False)
    if tools:
        request.tools, request.tool_choice = tools, "auto"
    return request


def _readable(region: str) -> bool:
    body = region.split(CALL_END)[0].strip()
    if body.startswith("{"):
        try:
            return isinstance(json.loads(body), dict)
        except json.JSONDecodeError:
            return False
    return "<function=" in body and ">" in body


def _unread_call(region: str) -> ToolCall:
    found = _NAME.search(region)
    name = next((group for group in found.groups() if group), "") if found else ""
    shown = region.split(CALL_END)[0].strip()
    shown = shown if len(shown) <= 120 else shown[:120] + "…"
    return ToolCall(id=_call_id(), name=name.strip(), error=f"this tool call could not be read: {shown!r}")


def _call_id() -> str:
    return f"call_{uuid.uuid4().hex[:24]}"


__all__ = ["CALL_END", "CALL_START", "THINK_END", "THINK_START", "Interpreter"]
