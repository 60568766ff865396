"""A checkpoint's tokenizer, renderer and interpreter, opened together from the configuration.

One place makes them, so that probing, training and evaluation cannot differ in a parser or a setting of the template.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stateward.config import PolicyConfig
from stateward.policy.checkpoint import load_tokenizer, policy_fingerprint
from stateward.policy.interpret import Interpreter
from stateward.policy.preflight import check_parsers
from stateward.policy.render import Renderer


@dataclass(frozen=True, kw_only=True)
class OpenedPolicy:
    """What a process needs of a checkpoint besides something that samples from it."""

    tokenizer: Any
    renderer: Renderer
    interpreter: Interpreter


def open_policy(model: Path, config: PolicyConfig) -> OpenedPolicy:
    """Open the checkpoint, and see a known turn go from its template through its parsers and back.

    Imports vLLM. Raises UserError where checkpoint, template and parsers do not go together.
    """
    tokenizer = load_tokenizer(model)
    renderer = Renderer(tokenizer, template_kwargs=config.template)
    interpreter = Interpreter(
        tokenizer, config.tool_parser, config.reasoning_parser or None, template_kwargs=config.template
    )
    check_parsers(renderer, interpreter)
    return OpenedPolicy(tokenizer=tokenizer, renderer=renderer, interpreter=interpreter)


def fingerprint_of(model: Path, config: PolicyConfig) -> str:
    """`policy_fingerprint` of a checkpoint under a configuration. Imports neither torch nor vLLM."""
    return policy_fingerprint(model, (config.tool_parser, config.reasoning_parser), config.template)
