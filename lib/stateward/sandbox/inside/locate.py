"""From a server's command line to its imported module and the MCP server object in it."""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any

_PYTHON = re.compile(r"^python(3(\.\d+)?)?$")
#: Interpreter flags that change nothing for a module that is imported.
_HARMLESS_FLAGS = frozenset({"-u", "-B"})
#: Names that server modules give their server object, in the order in which they are tried.
_USUAL_NAMES = ("mcp", "server", "app")


class NotForkable(Exception):
    """This server must run as an ordinary process; the text says why."""


@dataclass(frozen=True)
class Target:
    """What a Python command runs: `kind` is ``module`` or ``file``; `argv` are the arguments after it."""

    python: str
    kind: str
    name: str
    argv: tuple[str, ...]


def parse_command(command: Sequence[str]) -> Target | None:
    """The target of ``python [-u] -m MODULE ...`` or ``python [-u] FILE.py ...``; None for any other command."""
    if not command:
        return None
    python, *rest = command
    if python != sys.executable and not _PYTHON.match(os.path.basename(python)):
        return None
    while rest and rest[0] in _HARMLESS_FLAGS:
        rest = rest[1:]
    if len(rest) >= 2 and rest[0] == "-m":
        return Target(python, "module", rest[1], tuple(rest[2:]))
    if rest and rest[0].endswith(".py"):
        return Target(python, "file", rest[0], tuple(rest[1:]))
    return None


def load(kind: str, name: str, argv: Sequence[str]) -> ModuleType:
    """Import the module as the interpreter would have found it, without its ``__main__`` part."""
    if kind == "module":
        sys.path[0] = os.getcwd()
        sys.argv = [name, *argv]
        return importlib.import_module(name)
    path = os.path.abspath(name)
    sys.path[0] = os.path.dirname(path)
    sys.argv = [name, *argv]
    stem = os.path.splitext(os.path.basename(path))[0]
    spec = importlib.util.spec_from_file_location(stem, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[stem] = module
    spec.loader.exec_module(module)
    return module


def low_level(server: Any) -> Any:
    """The low-level SDK server behind a FastMCP or MCPServer object, the object itself if it is one, or None."""
    for attribute in ("_mcp_server", "_lowlevel_server"):
        inner = getattr(server, attribute, None)
        if inner is not None and hasattr(inner, "create_initialization_options"):
            return inner
    if type(server).__module__.startswith("mcp.server.lowlevel") and hasattr(server, "create_initialization_options"):
        return server
    return None


def find_server(module: ModuleType) -> Any:
    """The server object of a module; raises `NotForkable` if there is none, or no telling which."""
    names = vars(module)
    for name in _USUAL_NAMES:
        if not isinstance(names.get(name), type) and low_level(names.get(name)) is not None:
            return names[name]
    found = {
        id(low_level(value)): value
        for value in names.values()
        if not isinstance(value, (type, ModuleType)) and low_level(value) is not None
    }
    if len(found) == 1:
        return next(iter(found.values()))
    if not found:
        raise NotForkable(f"module {module.__name__} has no MCP server object at module level")
    raise NotForkable(
        f"module {module.__name__} has {len(found)} MCP server objects and none is called mcp, server or app"
    )


def has_own_lifespan(server: Any) -> bool:
    """Whether the server's author gave it a lifespan, which belongs to one world and not to a snapshot.

    The SDKs keep it in different places and wrap it in closures of their own; what they have in common is that the
    author's function comes from a module that is not the SDK's.
    """
    seen: set[int] = set()
    open_ = [
        getattr(low_level(server), "lifespan", None),
        getattr(server, "_lifespan", None),
        getattr(getattr(server, "settings", None), "lifespan", None),
    ]
    while open_:
        value = open_.pop()
        if value is None or id(value) in seen:
            continue
        seen.add(id(value))
        if not isinstance(value, FunctionType):
            if callable(value):
                return True
            continue
        if value.__module__.split(".")[0] not in ("mcp", "fastmcp", "contextlib"):
            return True
        open_.append(getattr(value, "__wrapped__", None))
        for cell in value.__closure__ or ():
            if isinstance(cell.cell_contents, FunctionType):
                open_.append(cell.cell_contents)
    return False
