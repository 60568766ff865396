"""Episodes in the public framework's result format (one ``DecodeResult`` a JSON line), in both directions.

What that format has no place for travels in ``metadata.stateward``, so that our own export comes back whole. Of a file
written by the framework itself, a trial's index is the position of its line among those of its task.

A line whose ``is_system_error`` is set, whose test has that flag, or which has no test result, is void: the aggregator
there counts it as an error beside passes and fails, and so do we (`Counts.void_as_failure` gives its mean).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stateward.outcome import EpisodeRecord, Outcome, Trial, Usage

#: Our reasons for the end of a conversation → theirs, where the names differ.
_FINISH_OUT = {"no_user": "no_user_llm", "length": "agent_limit", "fault": "agent_error", "": "done"}
_FINISH_IN = {"no_user_llm": "no_user", "agent_error": "fault"}
#: Fields of a record that the format has its own places for.
_CARRIED = ("messages", "reward", "outcome", "usage", "failure", "final_state")


def to_decode_result(record: EpisodeRecord) -> dict[str, Any]:
    """One JSON-ready row of the public format."""
    row = record.to_json()
    void = record.outcome is Outcome.VOID
    grader = record.fault_kind == "grader"
    metadata: dict[str, Any] = {
        "execution_time": record.seconds.get("total", 0.0),
        "repetition": record.trial.index,
        "stateward": {name: value for name, value in row.items() if name not in _CARRIED},
    }
    metadata["stateward"]["usage"] = row["usage"]
    if void and not grader:
        metadata["error"] = {"message": record.fault_cause, "type": record.fault_kind}
    failure = record.failure
    result = None
    if not void or grader:
        result = {
            "result": record.outcome is Outcome.PASS,
            "reward": 0.0 if void else record.reward,
            "is_system_error": void,
            "tb": record.fault_cause if void else str(failure.get("message", "")),
            "lineno": int(failure.get("line", -1) or -1),
            "line_content": str(failure.get("text", "")),
            "metadata": {"file": failure["file"]} if failure.get("file") else {},
        }
    return {
        "uid": record.trial.uid,
        "messages": list(_messages_out(record.messages)),
        "test_result": result,
        "usage": [_usage_out(record.usage["policy"])] if "policy" in record.usage else None,
        "metadata": metadata,
        "is_system_error": void and not grader,
        "finish_reason": _FINISH_OUT.get(record.finish, record.finish),
        "test_context": {"effects": record.final_state} if record.final_state else None,
    }


def from_decode_result(row: dict[str, Any], *, index: int, policy: str, settings: str) -> dict[str, Any]:
    """The record, as the JSON of `EpisodeRecord`, of one row. `index`, `policy` and `settings` are those of a row that
    was not exported by us.

    Raises KeyError, TypeError or AttributeError on a row of another shape.
    """
    metadata = row.get("metadata") or {}
    result = row.get("test_result")
    outcome, kind, cause = _verdict(row, result, metadata)
    void = outcome is Outcome.VOID
    uid = row["uid"]
    messages = list(_messages_in(row["messages"]))
    calls = [c for m in messages for c in m.get("tool_calls", ())]
    own = metadata.get("stateward") or {}
    record: dict[str, Any] = {
        "trial": {"uid": uid, "index": index, "policy": policy, "settings": settings},
        "domain": _domain(uid, row.get("test_tags")),
        "fault_kind": kind,
        "fault_cause": cause,
        "finish": _FINISH_IN.get(row.get("finish_reason", ""), row.get("finish_reason", "")),
        "turns": sum(m["role"] == "assistant" and not m.get("direct") for m in messages),
        "tool_calls": len(calls),
        "tool_errors": sum("error" in c for c in calls),
        "usage": {"policy": _usage_in(row["usage"])} if row.get("usage") else {},
        "seconds": {"total": float(metadata.get("execution_time") or 0.0)},
    }
    record |= own
    record["outcome"] = outcome.value
    record["reward"] = None if void or result is None else float(result.get("reward", result["result"]))
    record["messages"] = messages
    record["failure"] = {} if outcome is not Outcome.FAIL or result is None else _failure(result)
    record["final_state"] = (row.get("test_context") or {}).get("effects", {})
    return record


def trial_of(row: dict[str, Any]) -> Trial | None:
    """The trial of a row that was exported by us; None for one that was not."""
    own = (row.get("metadata") or {}).get("stateward")
    return Trial(**own["trial"]) if own else None


def _verdict(row: dict[str, Any], result: dict[str, Any] | None, metadata: dict[str, Any]) -> tuple[Outcome, str, str]:
    if row.get("is_system_error"):
        error = metadata.get("error")
        text = error.get("message", "") if isinstance(error, dict) else str(error or "")
        # Theirs has no kinds. What fails while a conversation is decoded is the endpoint, as a rule.
        return Outcome.VOID, "sampler", str(text) or "no message"
    if result is None:
        return Outcome.VOID, "grader", "no test result"
    if result.get("is_system_error"):
        where = f"line {result.get('lineno', -1)}: {result.get('line_content', '')}"
        return Outcome.VOID, "grader", str(result.get("tb") or where)
    return (Outcome.PASS if result["result"] else Outcome.FAIL), "", ""


def _failure(result: dict[str, Any]) -> dict[str, Any]:
    file = (result.get("metadata") or {}).get("file", "")
    return {
        "file": file,
        "line": result.get("lineno", -1),
        "text": result.get("line_content", ""),
        "message": result.get("tb", ""),
    }


def _domain(uid: str, tags: Any) -> str:
    if isinstance(tags, dict) and isinstance(tags.get("domain"), str):
        return str(tags["domain"])
    if isinstance(tags, dict) and isinstance(tags.get("domain"), list) and tags["domain"]:
        return str(tags["domain"][0])
    return uid.partition(":")[0].rpartition("/")[2].removesuffix(".py")


def _usage_out(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.prompt,
        "input_tokens_details": {"cached_tokens": usage.cached},
        "output_tokens": usage.completion,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": usage.prompt + usage.completion,
    }


def _usage_in(rows: list[dict[str, Any]]) -> dict[str, int]:
    return {
        "requests": len(rows),
        "prompt": sum(r.get("input_tokens", 0) for r in rows),
        "cached": sum((r.get("input_tokens_details") or {}).get("cached_tokens", 0) for r in rows),
        "completion": sum(r.get("output_tokens", 0) for r in rows),
        "reasoning": sum((r.get("output_tokens_details") or {}).get("reasoning_tokens", 0) for r in rows),
    }


def _messages_out(messages: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for m in messages:
        role, content = m.get("role"), m.get("content") or ""
        if role == "tool":
            yield {
                "T": "ToolResponse",
                "name": m.get("name", ""),
                "content": content,
                "id": m.get("tool_call_id", ""),
            }
            continue
        if m.get("reasoning_content"):
            yield {"T": "Text", "role": role, "content": m["reasoning_content"], "metadata": {"tag": "think"}}
        calls = [_call_out(c) for c in m.get("tool_calls") or ()]
        if content or not (calls or m.get("reasoning_content")):
            tag = {"metadata": {"tag": "direct"}} if m.get("direct") else {}
            yield {"T": "Text", "role": role, "content": content, **tag}
        if len(calls) == 1:
            yield calls[0]
        elif calls:
            yield {"T": "ParallelToolCall", "tool_calls": calls}


def _call_out(call: dict[str, Any]) -> dict[str, Any]:
    function = call.get("function", call)
    arguments = function.get("arguments", {})
    error = {"error": call["error"]} if call.get("error") else {}
    if not isinstance(arguments, dict):  # text that did not parse
        arguments, error = {"raw": arguments}, error or {"error": "arguments are not an object"}
    out = {"T": "ToolCall", "name": function.get("name", ""), "arguments": arguments, "id": call.get("id", "")}
    return {**out, "metadata": error} if error else out


def _messages_in(rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Their flat list joined into chat messages: thinking, text and calls of one assistant turn are one message."""
    turn: dict[str, Any] | None = None
    for row in rows:
        kind = row["T"]
        if kind == "Text" and row["role"] == "assistant":
            tag = (row.get("metadata") or {}).get("tag", "text")
            slot = "reasoning_content" if tag == "think" else "content"
            begun = turn is not None and (turn.get("tool_calls") or turn["content"] or (slot in turn and turn[slot]))
            if turn is None or begun or tag == "direct":
                if turn is not None:
                    yield turn
                turn = {"role": "assistant", "content": ""}
            turn[slot] = row["content"]
            if tag == "direct":
                turn["direct"] = True
        elif kind in ("ToolCall", "ParallelToolCall"):
            calls = [_call_in(c) for c in (row["tool_calls"] if kind == "ParallelToolCall" else [row])]
            if turn is not None and turn.get("tool_calls"):
                yield turn
                turn = None
            turn = turn or {"role": "assistant", "content": ""}
            turn["tool_calls"] = calls
        else:
            if turn is not None:
                yield turn
                turn = None
            if kind == "ToolResponse":
                yield {"role": "tool", "name": row["name"], "tool_call_id": row["id"], "content": row["content"]}
            elif kind == "Text":
                yield {"role": row["role"], "content": row["content"]}
            else:
                raise KeyError(f"unknown message kind {kind!r}")
    if turn is not None:
        yield turn


def _call_in(row: dict[str, Any]) -> dict[str, Any]:
    error = (row.get("metadata") or {}).get("error")
    out = {
        "id": row.get("id", ""),
        "type": "function",
        "function": {"name": row["name"], "arguments": row["arguments"]},
    }
    return {**out, "error": str(error)} if error else out
