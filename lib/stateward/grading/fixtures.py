"""Make the fixtures that a check asks for, and what they need themselves."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any


class Fixtures:
    """The fixtures of one check.

    Args:
        specs: {name: {"type": dotted name, "parameters": {…}}}.
        given: what every check has: ``x`` and ``judge``.
        stack: fixtures that are context managers are entered here.
    """

    def __init__(self, specs: dict[str, dict[str, Any]], given: dict[str, Any], stack: ExitStack) -> None:
        self.specs, self.stack = specs, stack
        self.made = dict(given)

    def arguments(self, function: Callable[..., Any]) -> dict[str, Any]:
        """The arguments of a check, by its parameters' names; one with a default and no fixture keeps the default."""
        wanted = inspect.signature(function).parameters.values()
        return {p.name: self._get(p.name, ()) for p in wanted if p.name in self.made or p.name in self.specs}

    def _get(self, name: str, chain: tuple[str, ...]) -> Any:
        if name in self.made:
            return self.made[name]
        if name in chain:
            raise RuntimeError(f"fixtures need each other in a circle: {' -> '.join((*chain, name))}")
        if name not in self.specs:
            raise RuntimeError(f"fixture {chain[-1]!r} needs {name!r}, which is not a fixture, x or judge")
        spec = self.specs[name]
        factory = _load(spec["type"])
        arguments = dict(spec["parameters"])
        for p in inspect.signature(factory).parameters.values():
            # A parameter with a default is the author's choice; only what must be given is injected.
            plain = p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY) and p.default is p.empty
            if plain and p.name not in arguments:
                arguments[p.name] = self._get(p.name, (*chain, name))
        value = factory(**arguments)
        if hasattr(value, "__enter__") and hasattr(value, "__exit__"):
            value = self.stack.enter_context(value)
        self.made[name] = value
        return value


def _load(dotted: str) -> Callable[..., Any]:
    module, _, attribute = dotted.rpartition(".")
    found: Callable[..., Any] = getattr(importlib.import_module(module), attribute)
    return found
