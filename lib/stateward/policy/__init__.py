"""Rendering, interpreting and sampling a policy's turns, by token ids."""

from stateward.policy.audit import Audit, audit
from stateward.policy.checkpoint import load_tokenizer, policy_fingerprint, stop_tokens
from stateward.policy.interpret import Interpreter
from stateward.policy.ledger import Ledger, Segment
from stateward.policy.opened import OpenedPolicy, fingerprint_of, open_policy
from stateward.policy.render import Renderer
from stateward.policy.turn import ChatModel, Sample, Sampler, ToolCall, Turn

__all__ = [
    "Audit",
    "ChatModel",
    "Interpreter",
    "Ledger",
    "OpenedPolicy",
    "Renderer",
    "Sample",
    "Sampler",
    "Segment",
    "ToolCall",
    "Turn",
    "audit",
    "fingerprint_of",
    "load_tokenizer",
    "open_policy",
    "policy_fingerprint",
    "stop_tokens",
]
