"""An in-memory SQLite state that is loaded from a configuration, dumped as plain values, and survives a fork."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

#: A dumped state: table → primary key (as text) → the other columns of the row.
State = dict[str, dict[str, dict[str, Any]]]


class Database:
    """Tables declared by SQL, each with a single-column primary key. There is no connection until `load`.

    SQLite forbids using a connection on the other side of a fork: `before_fork` turns the open one into bytes, and
    `after_fork` opens a new one on them, in the parent or in as many children as there are.
    """

    def __init__(self, ddl: str) -> None:
        self._ddl = ddl
        self._open_connection: sqlite3.Connection | None = None
        self._image = b""

    @property
    def _connection(self) -> sqlite3.Connection:
        if self._open_connection is None:
            raise RuntimeError("the database holds nothing yet: call load(), or after_fork() behind a fork")
        return self._open_connection

    @staticmethod
    def _open() -> sqlite3.Connection:
        # Autocommit mode: transactions are opened by __enter__ alone, so no statement starts one unseen.
        connection = sqlite3.connect(":memory:", isolation_level=None)
        connection.row_factory = sqlite3.Row
        connection.execute("PRAGMA foreign_keys = ON")
        return connection

    def load(self, config: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
        """Replace everything by the rows of `config`, {table: [row, ...]}.

        Raises:
            ValueError: on an unknown table or column, or a row that breaks a constraint of its table.
        """
        fresh = self._open()
        fresh.executescript(self._ddl)
        try:
            _insert(fresh, config)
        except ValueError:
            fresh.close()
            raise
        self.close()
        self._open_connection = fresh

    def dump(self) -> State:
        """The whole state as plain JSON values."""
        out: State = {}
        for table in _tables(self._connection):
            key = next(r["name"] for r in self._connection.execute(f"PRAGMA table_info({table})") if r["pk"])
            out[table] = {}
            for row in self._connection.execute(f"SELECT * FROM {table} ORDER BY {key}"):
                values = dict(row)
                out[table][str(values.pop(key))] = values
        return out

    def rows(self, query: str, *values: Any) -> list[dict[str, Any]]:
        return [dict(r) for r in self._connection.execute(query, values)]

    def row(self, query: str, *values: Any) -> dict[str, Any] | None:
        found = self._connection.execute(query, values).fetchone()
        return None if found is None else dict(found)

    def execute(self, query: str, *values: Any) -> None:
        self._connection.execute(query, values)

    def __enter__(self) -> Database:
        """One transaction: committed at the end, rolled back when an exception leaves the block."""
        self._connection.execute("BEGIN")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._connection.execute("COMMIT" if kind is None else "ROLLBACK")

    def before_fork(self) -> None:
        """Keep the state as bytes and close the connection."""
        self._image = self._connection.serialize()
        self.close()

    def after_fork(self) -> None:
        """Open a new connection on the bytes that `before_fork` kept."""
        self._open_connection = self._open()
        self._open_connection.deserialize(self._image)

    def close(self) -> None:
        if self._open_connection is not None:
            self._open_connection.close()
            self._open_connection = None


def _tables(connection: sqlite3.Connection) -> list[str]:
    """Names of the tables, in the order of their declaration."""
    query = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY rowid"
    return [r["name"] for r in connection.execute(query)]


def _insert(connection: sqlite3.Connection, config: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    tables = _tables(connection)
    if unknown := sorted(set(config) - set(tables)):
        raise ValueError(f"unknown tables {unknown}; the tables are {tables}")
    for table in tables:  # in declaration order, so that a referenced row is there before the one that names it
        columns = [r["name"] for r in connection.execute(f"PRAGMA table_info({table})")]
        for row in config.get(table, ()):
            if unknown := sorted(set(row) - set(columns)):
                raise ValueError(f"{table}: unknown columns {unknown}; the columns are {columns}")
            marks = ", ".join("?" for _ in row)
            try:
                connection.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", list(row.values()))
            except sqlite3.IntegrityError as error:
                raise ValueError(f"{table}: row {dict(row)} is refused: {error}") from error
