"""The interpreter: sampled token ids to reasoning, visible text and tool calls, on vLLM's own parsers.

The ids are turned into text as vLLM's engine does it (its stop token left out, special tokens kept, incomplete UTF-8 at
the end withheld), and the text goes through the same parser object that vLLM's chat endpoint builds from
``--tool-call-parser`` and ``--reasoning-parser``. So an agent that was trained here does the same behind a vLLM server.
What the server would drop in silence (a call that cannot be read, a call inside thinking) is counted and told.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

from stateward.errors import UserError, nearest
from stateward.policy.arguments import typed_schema
from stateward.policy.calls import CALL_START, read_calls
from stateward.policy.checkpoint import stop_tokens
from stateward.policy.thinking import THINK_END
from stateward.policy.turn import Turn


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
        self._kwargs = dict(template_kwargs or {})
        #: Whether turns begin with thinking: there is a parser for it, and the template does not switch it off.
        self.thinks = bool(reasoning_parser) and self._kwargs.get("enable_thinking", True) is not False
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
        text, ended = self.text(ids), bool(ids) and ids[-1] in self.stop_ids
        parsed_tools, schemas = self._prepared(tools)
        thought, said = self._split(text)
        unread = ""
        try:
            reasoning, content, parsed = self._parse(text, parsed_tools)
        except RecursionError:  # a value nested without end; a server answers it with HTTP 500
            reasoning, content, parsed, unread = thought, "", [], "a value in it is nested too deeply"
        problems: Counter[str] = Counter(truncated=int(not ended), call_in_thinking=thought.count(CALL_START))
        if self.thinks and not content and not parsed and THINK_END not in text:
            problems["unterminated_thinking"] = 1
        calls = read_calls(parsed or (), said, schemas, problems, ended=ended, unread=unread)
        return Turn(reasoning=reasoning or "", text=content or "", calls=tuple(calls), problems=dict(+problems))

    def _parse(self, text: str, tools: list[Any]) -> tuple[str | None, str | None, Any]:
        """(reasoning, content, calls) as the chat endpoint's parser has them."""
        parser = self._parser_class(self._tokenizer, tools or None, chat_template_kwargs=dict(self._kwargs))
        engine = getattr(parser.tool_parser, "_parser_engine", None)
        if engine is not None:
            # It would compute what a stream says after each mark of a call and then discard it: cubic in the marks of a
            # call, and the answer is the same. A value of HTML would hold up every episode of this process for seconds.
            engine._stream_arg_deltas = False
        parsed: tuple[str | None, str | None, Any] = parser.parse(text, _request(tools), enable_auto_tools=True)
        return parsed

    def _split(self, text: str) -> tuple[str, str]:
        """What was thought and what was said. They overlap where a call inside thinking ended it, as vLLM reads it."""
        if not self.thinks:
            return "", text
        thought, end, said = text.partition(THINK_END)
        if CALL_START in thought:
            return thought, text[text.index(CALL_START) :]
        return thought, said if end else ""

    def _prepared(self, tools: Sequence[dict[str, Any]]) -> tuple[list[Any], dict[str, dict[str, Any]]]:
        key = json.dumps(tools, sort_keys=True, default=str)
        if key not in self._tools:
            from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionToolsParam

            plain = [
                {
                    **tool,
                    "function": {
                        **tool["function"],
                        "parameters": typed_schema(tool["function"].get("parameters") or {}),
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
