"""``servers.yaml``: how each tool server is started or reached."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from stateward.errors import UserError, nearest
from stateward.tasks.section import Section, section
from stateward.tasks.task import ServerSpec
from stateward.tasks.yaml_text import Document, read

_KEYS = {
    "mcp-process": ("type", "command", "env", "cwd", "transport", "fork"),
    "mcp-remote": ("type", "endpoint", "headers", "timeout", "transport"),
}


class Servers:
    """The servers of one ``servers.yaml``, checked one by one when a task asks for them."""

    def __init__(self, path: Path, *, data_root: str) -> None:
        self.path, self.data_root = path, data_root
        self.document: Document = read(path, name=path.name)
        self.top = section(
            self.document, (), self.document.data or {}, "servers.yaml", ("use_internal_servers", "servers")
        )
        self.entries = self.top.mapping("servers")
        self._specs: dict[str, ServerSpec] = {}

    def spec(self, name: str, *, asked_by: Callable[[], str]) -> ServerSpec:
        """The server `name`, which the place that `asked_by` finds uses.

        Raises:
            UserError: no such server, or a mistake in its entry.
        """
        if name not in self._specs:
            if name in self.entries:
                self._specs[name] = self._read(name, self.entries[name])
            else:
                self._specs[name] = self._internal(name) or self._missing(name, asked_by())
        return self._specs[name]

    def _missing(self, name: str, asked_by: str) -> ServerSpec:
        raise UserError(
            f"{asked_by}: there is no server {name!r}", f"{self.path} does not name it", nearest(name, self.entries)
        )

    def _internal(self, name: str) -> ServerSpec | None:
        """The public framework's own ``mcp_NAME.py``, if that package is installed and the file wants it."""
        if not self.top.flag("use_internal_servers", default=True):
            return None
        package = importlib.util.find_spec("thinkingbox")
        for folder in (package.submodule_search_locations or ()) if package else ():
            file = Path(folder) / "tools" / f"mcp_{name}.py"
            if file.is_file():
                return ServerSpec(name=name, command=(sys.executable, str(file)), env=self._environment({}))
        return None

    def _read(self, name: str, value: Any) -> ServerSpec:
        path = ("servers", name)
        kind = value.get("type") if isinstance(value, dict) else None
        if kind not in _KEYS:
            raise self.document.mistake(
                (*path, "type"), f"server {name!r} has type {kind!r}", do=nearest(str(kind), _KEYS)
            )
        if kind == "mcp-remote" and "credential" in value:
            raise self.document.mistake(
                (*path, "credential"), "'credential' is not supported", do="put the token into headers"
            )
        entry = section(self.document, path, value, f"server {name}", _KEYS[kind])
        return self._process(name, entry) if kind == "mcp-process" else self._remote(name, entry)

    def _process(self, name: str, entry: Section) -> ServerSpec:
        entry.require("command")
        if entry.text("transport", "stdio") != "stdio":
            raise entry.refuse("transport", "a process is reached over stdio", do="use mcp-remote for the others")
        return ServerSpec(
            name=name,
            kind="mcp-process",
            command=tuple(self._formatted(entry, part) for part in entry.texts("command")),
            env=self._environment(entry.text_map("env")),
            cwd=self._folder(entry),
            fork=entry.flag("fork", default=True),
        )

    def _remote(self, name: str, entry: Section) -> ServerSpec:
        entry.require("endpoint")
        transports = ("streamable-http", "sse")
        transport = entry.text("transport", transports[0])
        if transport not in transports:
            raise entry.refuse("transport", f"unknown transport {transport!r}", do=nearest(transport, transports))
        return ServerSpec(
            name=name,
            kind="mcp-remote",
            endpoint=entry.text("endpoint"),
            headers=entry.text_map("headers"),
            timeout=entry.number("timeout", 60.0),
            transport=transport,
        )

    def _formatted(self, entry: Section, part: str) -> str:
        try:
            return part.format(python=sys.executable, env=os.environ)
        except (KeyError, IndexError, ValueError, AttributeError) as error:
            raise entry.refuse(
                "command",
                f"cannot fill {part!r}: {type(error).__name__} {error}",
                "command parts may hold {python} and {env[NAME]}; NAME must be set; write other braces twice",
            ) from error

    def _folder(self, entry: Section) -> str:
        text = entry.text("cwd")
        if not text:
            return ""
        # The public framework starts servers from its own working directory; a file that moves with its dataset
        # means its own folder. The one that exists is meant, the file's first.
        for base in (self.path.parent, Path.cwd()):
            if (base / text).is_dir():
                return str((base / text).resolve())
        raise entry.refuse("cwd", f"there is no folder {text!r}", f"looked in {self.path.parent} and {Path.cwd()}")

    def _environment(self, env: dict[str, str]) -> dict[str, str]:
        # Servers find their support files through this variable.
        return {"THINKINGBOX_DATA": self.data_root, **env}


def find_servers_file(dataset: Path, given: Path | None) -> Path:
    """`given`, or ``servers.yaml`` in the dataset, or ``servers/servers.yaml`` beside it.

    Raises:
        UserError: none of them is there.
    """
    candidates: Iterable[Path] = (
        [given] if given else [dataset / "servers.yaml", dataset.parent / "servers" / "servers.yaml"]
    )
    for path in candidates:
        if path.is_file():
            return path
    raise UserError(
        f"no servers file: {' and '.join(map(str, candidates))} not found",
        "it says how tool servers are started",
        "put servers.yaml into the dataset, or set tasks.servers",
    )
