"""What a world needs of one of its tool servers, whichever way the server runs."""

from __future__ import annotations

from typing import Any, Protocol


class ServerSession(Protocol):
    """One server with one world's state. `forked.ForkedServer` and `plain.PlainServer` are it.

    Attributes:
        tools: as the server lists them, reserved ones included: {name, description, inputSchema}.
        init_result: what init returned, without its status.
        initial_state: the state after init.
        pids: processes of this server that belong to this world alone.
    """

    name: str
    tools: list[dict[str, Any]]
    init_result: dict[str, Any]
    initial_state: dict[str, Any]

    @property
    def pids(self) -> list[int]: ...

    async def call(self, tool: str, arguments: dict[str, Any]) -> tuple[str, bool]:
        """(text, is_error). Raises SystemFault "sandbox" if the server is gone or breaks the protocol."""

    async def state(self) -> dict[str, Any]:
        """The current state. Raises SystemFault "sandbox"."""

    def kill(self) -> None:
        """End the server's process at once, without its teardown; `close` still has to be awaited."""

    async def close(self) -> None:
        """End the server, with its teardown if it has one of its own; returns when its process is gone."""
