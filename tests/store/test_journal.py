from __future__ import annotations

import errno
import fcntl
import json
import multiprocessing
import os
import resource
import signal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stateward.errors import UserError
from stateward.store import Journal, read_journal

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(rows=st.lists(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), JSON), max_size=4))
def test_what_is_appended_is_read(tmp_path_factory: Any, rows: list[dict[str, Any]]) -> None:
    path = tmp_path_factory.mktemp("j") / "a.jsonl"
    with Journal(path) as journal:
        for row in rows:
            journal.append(row)
        assert journal.rows == len(rows), "a journal without rows is removed, not sealed"
    assert list(read_journal(path)) == rows
    assert [json.loads(line)["row"] for line in path.read_bytes().splitlines()] == rows  # plain JSON lines for jq


def test_a_file_cut_anywhere_keeps_every_whole_line(tmp_path: Path) -> None:
    """Every possible torn write: all whole rows are read, the torn one is counted, and reopening continues cleanly."""
    path = tmp_path / "a.jsonl"
    with Journal(path) as journal:
        for n in range(3):
            journal.append({"n": n, "text": "é\n"})
    whole = path.read_bytes()
    ends = [i + 1 for i, byte in enumerate(whole) if byte == ord("\n")]
    for cut in range(len(whole) + 1):
        path.write_bytes(whole[:cut])
        kept = sum(end <= cut for end in ends)
        reader = read_journal(path)
        assert [row["n"] for row in reader] == list(range(kept))
        assert reader.torn == (cut not in (0, *ends))
        assert reader.damaged == 0
        with Journal(path) as journal:
            assert (journal.rows, journal.torn) == (kept, reader.torn)
            journal.append({"n": 99})
        after = read_journal(path)
        assert [row["n"] for row in after] == [*range(kept), 99]
        assert after.torn == 0


def test_a_flipped_byte_loses_one_row_and_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    with Journal(path) as journal:
        for n in range(3):
            journal.append({"n": n, "text": "abc"})
    data = path.read_bytes().replace(b'"n":1,"text":"abc"', b'"n":1,"text":"abd"')
    path.write_bytes(data)
    reader = read_journal(path)
    assert [row["n"] for row in reader] == [0, 2]
    assert (reader.damaged, reader.torn) == (1, 0)
    with Journal(path) as journal:
        assert (journal.rows, journal.damaged, journal.torn) == (2, 1, 0)
    assert path.read_bytes() == data, "a damaged line is evidence; it stays"


def test_damaged_lines_are_told_from_a_torn_last_one(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    with Journal(path) as journal:
        for n in range(6):
            journal.append({"n": n})
    lines = path.read_bytes().splitlines(keepends=True)
    for bad in (1, 2, 4, 5):
        lines[bad] = lines[bad].replace(b'"n":', b'"m":')
    path.write_bytes(b"".join(lines))
    reader = read_journal(path)
    assert [row["n"] for row in reader] == [0, 3]
    assert (reader.damaged, reader.torn) == (3, 1)
    with Journal(path) as journal:
        assert (journal.rows, journal.damaged, journal.torn) == (2, 3, 1)
    assert path.read_bytes() == b"".join(lines[:5]), "the torn line is cut off, the damaged ones stay"


def test_a_new_journals_name_is_durable_before_its_first_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(os.readlink(f"/proc/self/fd/{fd}")))
    with Journal(tmp_path / "a.jsonl") as journal:
        assert synced == [str(tmp_path)]
        journal.append({"n": 0})
    assert synced == [str(tmp_path), f"{tmp_path}/a.jsonl"]


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_told_and_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, number: int
) -> None:
    """NFS without a lock daemon, and Lustre without `flock`: neither can be had here."""

    def flock(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", flock)
    with Journal(tmp_path / "a.jsonl") as journal:
        journal.append({"n": 0})
    assert "a second writer cannot be detected" in caplog.text


def test_a_lock_that_fails_otherwise_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(*_: object) -> None:
        raise OSError(errno.EIO, "I/O error")

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(OSError, match="I/O error"):
        Journal(tmp_path / "a.jsonl")


def test_zeros_after_a_crash_count_as_a_torn_line(tmp_path: Path) -> None:
    """Some file systems show a file's new length before its data: the tail reads as zeros."""
    path = tmp_path / "a.jsonl"
    with Journal(path) as journal:
        journal.append({"n": 0})
    with open(path, "ab") as file:
        file.write(bytes(500))
    with Journal(path) as journal:
        assert (journal.rows, journal.torn) == (1, 1)


def _hold(path: Path, pipe: Any) -> None:
    with Journal(path) as journal:
        journal.append({"n": 0})
        pipe.send("ready")
        signal.pause()


def test_a_second_writer_is_refused_and_a_dead_one_is_not(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(target=_hold, args=(path, there))
    process.start()
    there.close()
    try:
        assert here.recv() == "ready"
        with pytest.raises(UserError, match="another process") as caught:
            Journal(path)
        assert "one writer" in caught.value.why
        assert caught.value.do
    finally:
        process.kill()
        process.join(60)
    with Journal(path) as journal:
        assert journal.rows == 1


def test_a_full_disk_leaves_no_torn_line(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    with Journal(path) as journal:
        journal.append({"n": 0})
        size = path.stat().st_size
        old = resource.getrlimit(resource.RLIMIT_FSIZE)
        before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 1000, old[1]))
        try:
            with pytest.raises(OSError):
                journal.append({"n": 1, "text": "x" * 5000})
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, old)
            signal.signal(signal.SIGXFSZ, before)
        assert path.stat().st_size == size
        journal.append({"n": 2})
    assert [row["n"] for row in read_journal(path)] == [0, 2]


def test_nan_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    with Journal(path) as journal:
        with pytest.raises(ValueError):
            journal.append({"reward": float("nan")})
        journal.append({"reward": None})
    assert list(read_journal(path)) == [{"reward": None}]
