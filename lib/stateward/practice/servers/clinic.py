"""The clinic's tool server."""

from __future__ import annotations

from stateward.practice.clinic import ClinicDesk
from stateward.practice.servers.serving import tool_server

desk = ClinicDesk()
server = tool_server("clinic", desk)


def __stateward_before_fork__() -> None:
    """The sandbox calls this in the snapshot: SQLite connections do not cross a fork."""
    desk.before_fork()


def __stateward_after_fork__() -> None:
    """The sandbox calls this in each world that is forked from the snapshot."""
    desk.after_fork()


if __name__ == "__main__":
    server.run(transport="stdio")
