"""`TestContext`: what a check is given as ``x``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from stateward.grading.checkapi.messages import (
    Message,
    Record,
    Text,
    ToolCall,
    ToolCallResponse,
    ToolResponse,
    from_chat,
    transcript,
)


@dataclass(kw_only=True)
class TestContext(Record):
    """The end of an episode.

    Attributes:
        response: the last assistant text.
        effects: {server: final state}; init_result: {server: result of its initialisation}.
        tool_calls: every call made, with its response.
        metadata: free for the check to write to; it is kept with the grade.
    """

    __test__ = False

    response: str = ""
    tool_direct_responses: list[str] = field(default_factory=list)
    effects: dict[str, Any] = field(default_factory=dict)
    tool_calls: list[ToolCallResponse] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    init_result: dict[str, Any] = field(default_factory=dict)
    session_id: str = ""
    metadata: dict[str, Any] = field(default_factory=dict)

    def transcript(self, limit: int = 0) -> str:
        """What was said, or its end from the `limit`-th last assistant text on."""
        return transcript(self.messages, limit=limit)

    def query(self) -> str:
        """The first user message; ValueError when there is none."""
        for message in self.messages:
            if isinstance(message, Text) and message.role == "user" and not message.metadata.get("is_dummy"):
                return message.content
        raise ValueError("there is no user message")


def from_evidence(evidence: dict[str, Any]) -> TestContext:
    """The context of an `Evidence` that crossed as JSON."""
    return TestContext(
        response=evidence["response"],
        tool_direct_responses=evidence["tool_direct_responses"],
        effects=evidence["effects"],
        tool_calls=[_call(call) for call in evidence["tool_calls"]],
        messages=from_chat(evidence["messages"]),
        init_result=evidence["init_result"],
        session_id=evidence["session_id"],
        metadata=evidence["metadata"],
    )


def _call(call: dict[str, Any]) -> ToolCallResponse:
    call_id = call.get("id", "")
    metadata = {"error": call["result"]} if call.get("is_error") else {}
    return ToolCallResponse(
        tool_call=ToolCall(name=call["name"], arguments=call["arguments"], id=call_id, metadata=metadata),
        tool_response=ToolResponse(name=call["name"], content=call["result"], id=call_id),
    )
