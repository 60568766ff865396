"""Rows of many tasks share their flushes and lose nothing."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from stateward.store import GroupCommit, Journal, read_journal
from stateward.store import journal as journal_module


async def test_rows_that_come_during_a_flush_share_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushes, begun, go_on = 0, threading.Event(), threading.Event()

    def fsync(fd: int) -> None:
        nonlocal flushes
        flushes += 1
        begun.set()
        assert go_on.wait(30)
        os.fdatasync(fd)

    with Journal(tmp_path / "j.jsonl") as journal:
        monkeypatch.setattr(journal_module.os, "fsync", fsync)
        commit = GroupCommit(journal)
        first = asyncio.create_task(commit.append({"n": 0}))
        await asyncio.to_thread(begun.wait, 30)
        others = [asyncio.create_task(commit.append({"n": n})) for n in range(1, 50)]
        await asyncio.sleep(0)
        assert not first.done()
        go_on.set()
        await asyncio.gather(first, *others)
        assert (flushes, journal.rows) == (2, 50)
    assert [row["n"] for row in read_journal(tmp_path / "j.jsonl")] == list(range(50))


def test_a_journal_is_closed_once_what_is_being_written_is_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def fsync(fd: int) -> None:
        begun.set()
        assert go_on.wait(30)
        os.fdatasync(fd)

    journal = Journal(tmp_path / "j.jsonl")
    monkeypatch.setattr(journal_module.os, "fsync", fsync)
    writer = threading.Thread(target=journal.append, args=({"n": 1},))
    writer.start()
    assert begun.wait(30)
    closer = threading.Thread(target=journal.close)
    closer.start()
    closer.join(0.2)
    assert closer.is_alive(), "another file could have this one's number by now"
    go_on.set()
    closer.join(30)
    writer.join(30)
    assert [row["n"] for row in read_journal(tmp_path / "j.jsonl")] == [1]
    with pytest.raises(OSError, match="Bad file descriptor"):
        journal.append({"n": 2})


async def test_a_row_that_is_no_json_fails_alone(tmp_path: Path) -> None:
    with Journal(tmp_path / "j.jsonl") as journal:
        commit = GroupCommit(journal)
        bad: dict[str, Any] = {"n": float("nan")}
        told = await asyncio.gather(commit.append({"n": 1}), commit.append(bad), return_exceptions=True)
    assert told[0] is None
    assert isinstance(told[1], ValueError)
    assert [row["n"] for row in read_journal(tmp_path / "j.jsonl")] == [1]


async def test_a_full_disk_is_told_to_all_who_wait_and_the_next_can_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    with Journal(tmp_path / "j.jsonl") as journal:
        commit = GroupCommit(journal)
        with monkeypatch.context() as patch:
            patch.setattr(journal_module.os, "fsync", full)
            told = await asyncio.gather(*(commit.append({"n": n}) for n in range(3)), return_exceptions=True)
        assert all(isinstance(error, OSError) for error in told)
        await commit.append({"n": 9})
    assert [row["n"] for row in read_journal(tmp_path / "j.jsonl")] == [9]
