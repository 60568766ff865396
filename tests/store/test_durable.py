"""Whole or not at all, and on disk before anybody is told."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from stateward.store.durable import move_into_place, write_text


def test_bytes_are_on_disk_before_the_name_and_the_name_before_the_return(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[tuple[str, str]] = []
    fsync, replace = os.fsync, os.replace

    def noted_fsync(fd: int) -> None:
        done.append(("fsync", os.readlink(f"/proc/self/fd/{fd}")))
        fsync(fd)

    def noted_replace(old: Path, new: Path) -> None:
        done.append(("replace", str(new)))
        replace(old, new)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(os, "replace", noted_replace)
    (tmp_path / "new").write_text("new")
    move_into_place(tmp_path / "new", tmp_path / "file")
    assert done == [("fsync", f"{tmp_path}/new"), ("replace", f"{tmp_path}/file"), ("fsync", str(tmp_path))]


def test_who_reads_the_old_text_reads_all_of_it(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "file"
    write_text(path, "old\n" * 1_000)
    with path.open() as reader:
        assert reader.readline() == "old\n"
        write_text(path, "new\n")
        assert reader.read() == "old\n" * 999
    assert path.read_text() == "new\n"
    assert [file.name for file in path.parent.iterdir()] == ["file"]
