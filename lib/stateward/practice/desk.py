"""What the three businesses have in common: tools as methods over a database, and nothing of MCP."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeVar

from stateward.practice.database import Database, State

_Method = TypeVar("_Method", bound=Callable[..., dict[str, Any]])


class Refusal(Exception):
    """A tool says no: unknown id, impossible value. The model reads ``{"error": text}``; nothing has changed."""


def tool(method: _Method) -> _Method:
    """Mark a method as a tool. Its name, docstring and annotations are what the model is shown."""
    method.__is_tool__ = True  # type: ignore[attr-defined]
    return method


class Desk:
    """A business: `ddl` declares its tables, the methods marked by `tool` are what the agent can do.

    Tools check that a request *can* be carried out (the order exists). Whether it *may* be is the written policy's
    matter: the desk records what it is told, and the check of the final state judges it.
    """

    ddl: ClassVar[str]

    def __init__(self, config: Mapping[str, Any] | None = None) -> None:
        self.database = Database(self.ddl)
        if config is not None:
            self.init(config)

    def init(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Start afresh from `config`, {table: [row, ...]}. Returns {"status": "ok", "initial": the state}.

        Raises:
            ValueError: on an unknown table or column, or a row that the table refuses.
        """
        self.database.load(config)
        return {"status": "ok", "initial": self.state()}

    def state(self) -> State:
        """The whole state: table → key → row."""
        return self.database.dump()

    def before_fork(self) -> None:
        self.database.before_fork()

    def after_fork(self) -> None:
        self.database.after_fork()

    def close(self) -> None:
        self.database.close()

    @classmethod
    def tool_names(cls) -> list[str]:
        """In the order of definition."""
        return [name for name, value in vars(cls).items() if getattr(value, "__is_tool__", False)]

    def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Run a tool as the server does. The text is exactly what the server returns for these arguments.

        Raises:
            KeyError: no such tool.
            TypeError: the arguments do not fit its signature.
        """
        if name not in self.tool_names():
            raise KeyError(name)
        method = getattr(self, name)
        bound = inspect.signature(method).bind(**arguments)
        try:
            with self.database:
                result = method(*bound.args, **bound.kwargs)
        except Refusal as refusal:
            result = {"error": str(refusal)}
        return json.dumps(result, ensure_ascii=False)
