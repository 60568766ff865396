"""Hashes of files are remembered as long as nothing can have changed."""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path

import pytest

from stateward.policy import hashes
from stateward.policy.hashes import hash_files


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "stateward" / "file-hashes.json"


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the files that were read."""
    names: list[str] = []
    original = hashes._hash

    def spy(path: Path) -> str:
        names.append(path.name)
        return original(path)

    monkeypatch.setattr(hashes, "_hash", spy)
    return names


def settled(path: Path, content: bytes, age: float = 1000.0) -> Path:
    path.write_bytes(content)
    os.utime(path, (time.time() - age,) * 2)
    return path


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def test_files_are_read_once(tmp_path: Path, hashed: list[str]) -> None:
    files = [settled(tmp_path / name, name.encode() * 5) for name in ("a", "b", "c")]
    expected = [sha(name * 5) for name in (b"a", b"b", b"c")]
    assert hash_files(files) == expected
    assert hash_files(files[::-1]) == expected[::-1]
    assert sorted(hashed) == ["a", "b", "c"]


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    file = settled(tmp_path / "a", b"one")
    assert hash_files([file]) == [sha(b"one")]
    assert hash_files([settled(file, b"two", age=500)]) == [sha(b"two")]
    assert hash_files([settled(file, b"three", age=500)]) == [sha(b"three")]


def test_a_file_just_written_is_not_remembered(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_bytes(b"one")
    stamp = file.stat()
    assert hash_files([file]) == [sha(b"one")]
    file.write_bytes(b"two")
    os.utime(file, ns=(stamp.st_mtime_ns, stamp.st_mtime_ns))  # the same size and time stamp
    assert hash_files([file]) == [sha(b"two")]


@pytest.mark.parametrize("content", ["", "[]", "{", '{"x": 1}'])
def test_a_damaged_cache_is_ignored(tmp_path: Path, cache: Path, content: str) -> None:
    file = settled(tmp_path / "a", b"one")
    cache.parent.mkdir(parents=True)
    cache.write_text(content.replace("x", str(file)))
    assert hash_files([file]) == [sha(b"one")]


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert hash_files([settled(tmp_path / "a", b"one")]) == [sha(b"one")]
