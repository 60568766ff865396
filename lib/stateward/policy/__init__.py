"""Rendering, interpreting and sampling a policy's turns, by token ids."""

from stateward.policy.audit import Audit, audit
from stateward.policy.checkpoint import load_tokenizer, policy_fingerprint, stop_tokens
from stateward.policy.interpret import Interpreter
from stateward.policy.ledger import Ledger, Segment
from stateward.policy.render import Renderer
from stateward.policy.turn import ChatModel, Sample, Sampler, ToolCall, Turn

__all__ = [
    "Audit",
    "ChatModel",
    "Interpreter",
    "Ledger",
    "Renderer",
    "Sample",
    "Sampler",
    "Segment",
    "ToolCall",
    "Turn",
    "audit",
    "load_tokenizer",
    "policy_fingerprint",
    "stop_tokens",
]
