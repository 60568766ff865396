"""The append-only journal that one writer keeps while a shard grows.

One line is one JSON object ``{"crc":"<8 hex>","row":{…}}``: `crc` is the CRC-32 of the bytes of `row`, so that a line
that was half written, or that a file system filled with zeros after a crash, is told from a whole one. Lines stay
plain JSON, for `jq` and for eyes.

Every append ends in an fsync, and a finished episode is told to nobody before it. Rows that come at the same moment may
share one (`group_commit`).
"""

from __future__ import annotations

import json
import logging
import os
import threading
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from stateward.errors import UserError
from stateward.store import lock
from stateward.store.durable import fsync_directory

_LOG = logging.getLogger(__name__)
_HEAD = len(b'{"crc":"00000000","row":')


def encode_line(row: dict[str, Any]) -> bytes:
    """One journal line, newline included. Raises TypeError or ValueError on a row that is not JSON (NaN included)."""
    body = json_bytes(row)
    return b'{"crc":"%08x","row":%s}\n' % (zlib.crc32(body), body)


def json_bytes(row: dict[str, Any]) -> bytes:
    """Compact JSON in UTF-8. Half a surrogate pair, which a tool or a model may well write, is kept as an escape."""
    try:
        return json.dumps(row, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    except UnicodeEncodeError:
        return json.dumps(row, separators=(",", ":"), allow_nan=False).encode()


def line_body(line: bytes) -> bytes | None:
    """The JSON bytes of the row in `line` (newline included), or None if the line is torn or damaged."""
    if not (line.startswith(b'{"crc":"') and line.endswith(b"}\n") and len(line) > _HEAD + 2):
        return None
    body = line[_HEAD:-2]
    if line[8:_HEAD] != b'%08x","row":' % zlib.crc32(body):
        return None
    return body


class Journal:
    """The one writer of a journal file. Opens or continues `path`; a torn last line is cut off and counted.

    Attributes:
        rows: whole lines that stood in the file when it was opened, plus those appended since.
        torn: 1 if opening cut off a torn last line, else 0.
        damaged: lines before the last that fail their checksum; they stay in place and readers skip them.

    Raises:
        UserError: another process holds the journal.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        fresh = not self.path.exists()
        self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self.rows = self.torn = self.damaged = 0
        self._in_use = threading.Lock()
        try:
            _lock(self._fd, self.path)
            self._cut_torn_tail()
            if fresh:
                fsync_directory(self.path.parent)
        except BaseException:
            os.close(self._fd)
            self._fd = -1
            raise

    def append(self, row: dict[str, Any]) -> None:
        """Write `row` durably: when this returns, the row survives the process and the node."""
        self.append_lines([encode_line(row)])

    def append_lines(self, lines: Sequence[bytes]) -> None:
        """Write what `encode_line` made durably, with one fsync.

        A write that fails half-way (disk full) is cut off again, so the next append starts on a clean line.
        """
        data = memoryview(b"".join(lines))
        with self._in_use:
            start = os.fstat(self._fd).st_size
            try:
                while data:
                    data = data[os.write(self._fd, data) :]
                os.fsync(self._fd)
            except OSError as error:
                os.ftruncate(self._fd, start)
                error.filename = str(self.path)  # the system call knows no name
                raise
            self.rows += len(lines)

    def close(self) -> None:
        """Release the file and its lock, once what another thread appends just now is written; harmless if called
        twice. The number of a closed file soon belongs to another one, into which the rest would go."""
        with self._in_use:
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def _cut_torn_tail(self) -> None:
        end, bad_at = 0, -1
        with open(self.path, "rb") as file:
            for line in file:
                if line_body(line) is None:
                    if bad_at >= 0:
                        self.damaged += 1
                    bad_at = end
                else:
                    if bad_at >= 0:  # a bad line that was not the last
                        self.damaged += 1
                        bad_at = -1
                    self.rows += 1
                end += len(line)
        if bad_at >= 0:
            os.ftruncate(self._fd, bad_at)
            os.fsync(self._fd)
            self.torn = 1
            _LOG.warning("%s: cut off a torn last line of %d bytes", self.path, end - bad_at)
        if self.damaged:
            _LOG.warning("%s: %d damaged lines stay in place and are skipped", self.path, self.damaged)


class JournalReader(Iterator[dict[str, Any]]):
    """Iterates over the rows of a journal, also of one that is being written.

    Attributes (final once the iteration has ended):
        torn: 1 if the last line is torn; it is dropped, and its episode counts as not run.
        damaged: earlier lines whose checksum fails; dropped likewise.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.torn = self.damaged = 0
        self._rows = self._read()

    def __next__(self) -> dict[str, Any]:
        return next(self._rows)

    def _read(self) -> Iterator[dict[str, Any]]:
        bad = 0
        with open(self.path, "rb") as file:
            for line in file:
                body = line_body(line)
                if body is None:
                    bad += 1
                    continue
                self.damaged, bad = self.damaged + bad, 0
                yield json.loads(body)
        if bad:
            self.torn, self.damaged = 1, self.damaged + bad - 1


def read_journal(path: Path | str) -> JournalReader:
    """The rows of the journal at `path`; `.torn` and `.damaged` count what was dropped.

    Raises:
        FileNotFoundError: at the first row, if the journal is not there (it may have been sealed meanwhile).
    """
    return JournalReader(path)


def _lock(fd: int, path: Path) -> None:
    try:
        missing = lock.take(fd)
    except BlockingIOError:
        raise UserError(
            f"{path} is being written by another process",
            "a journal has one writer; two would interleave their lines",
            "wait for the other job to end, or give this one another shard name",
        ) from None
    if missing:
        _LOG.warning("%s: this file system has no locks (%s); a second writer cannot be detected", path, missing)
