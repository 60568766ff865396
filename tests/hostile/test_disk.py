"""Shards prove their content, and a full disk ends in one sentence with nothing lost."""

from __future__ import annotations

import errno
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

from stateward import errors
from stateward.outcome import EpisodeRecord, Outcome, Trial
from stateward.store import Journal, read_records, seal
from stateward.store.shard import COLUMNS, read_blobs, read_columns

FLIPS = int(os.environ.get("STATEWARD_FLIPS", "200"))  # each reads a whole shard


def write_journal(path: Path, records: int, text: Callable[[int], str]) -> None:
    with Journal(path) as journal:
        for index in range(records):
            trial = Trial(uid=f"a.py:test_{index % 7}", index=index, policy="p" * 16, settings="s" * 16)
            outcome = Outcome.PASS if index % 3 else Outcome.FAIL
            record = EpisodeRecord(
                trial=trial,
                outcome=outcome,
                reward=float(outcome is Outcome.PASS),
                domain="shop",
                finish="done",
                turns=index,
                messages=[{"role": "user", "content": text(index)}],
                started=1_000.0 + index,
            )
            journal.append(record.to_json())


def test_no_flipped_bit_of_a_shard_changes_a_value_silently(tmp_path: Path) -> None:
    """Of the columns' bytes and of all others: each flip is refused by a reader, or changes nothing that is read."""
    journal, shard, damaged = (tmp_path / name for name in ("a.jsonl", "a.h5", "b.h5"))
    write_journal(journal, 40, str)
    seal(journal, shard)
    data, good = shard.read_bytes(), read_columns(shard)
    blobs = list(read_blobs(shard))
    generator = random.Random(7)
    with h5py.File(shard, "r") as file:
        chunks = [file["columns"][name].id.get_chunk_info(0) for name in COLUMNS]
    places = [chunk.byte_offset + generator.randrange(chunk.size) for chunk in chunks]
    places += [generator.randrange(len(data)) for _ in range(FLIPS - len(places))]
    refused = set()
    for place in places:
        flipped = bytearray(data)
        flipped[place] ^= 1 << generator.randrange(8)
        damaged.write_bytes(flipped)
        try:
            columns = read_columns(damaged)
            rows = list(read_blobs(damaged))
        except (OSError, KeyError, RuntimeError, ValueError):
            refused.add(place)
            continue
        assert rows == blobs, place
        assert all(np.array_equal(columns[name], good[name]) for name in COLUMNS), place
    assert refused >= set(places[: len(COLUMNS)])


def test_a_changed_column_is_named(tmp_path: Path) -> None:
    journal, shard = tmp_path / "a.jsonl", tmp_path / "a.h5"
    write_journal(journal, 9, str)
    seal(journal, shard)
    data = shard.read_bytes()
    outcomes = read_columns(shard)["outcome"].tobytes()
    shard.write_bytes(data.replace(outcomes, outcomes.replace(b"fail", b"pass")))
    with pytest.raises(OSError, match=r"a\.h5: column 'outcome' was damaged"):
        read_records(tmp_path)


SEAL = """
import sys
from pathlib import Path
from stateward.errors import program
from stateward.store import seal

def main():
    seal(Path(sys.argv[1]) / "a.jsonl", Path(sys.argv[1]) / "a.h5")
    return 0

program(main)
"""


def test_a_full_disk_while_sealing_loses_nothing(tmp_path: Path) -> None:
    """On a file system of 512 kB of its own, in namespaces of its own."""
    disk, source = tmp_path / "disk", tmp_path / "a.jsonl"
    disk.mkdir()
    generator = random.Random(7)
    write_journal(source, 20, lambda _: generator.randbytes(8_000).hex())
    (tmp_path / "seal.py").write_text(SEAL)
    script = (
        f"mount -t tmpfs -o size=512k none {disk} && cp {source} {disk}/a.jsonl || exit 99\n"
        f"{sys.executable} -P {tmp_path}/seal.py {disk}; echo full $?; ls -A {disk}\n"
        f"cmp {source} {disk}/a.jsonl && mount -o remount,size=4m {disk}\n"
        f"{sys.executable} -P {tmp_path}/seal.py {disk}; echo room $?; cp {disk}/a.h5 {tmp_path}/sealed.h5\n"
    )
    command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script]
    if shutil.which("unshare") is None:
        pytest.skip("no unshare here")
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if done.returncode == 99 or "unshare failed" in done.stderr:
        pytest.skip(f"no file system of one's own here: {done.stderr}")
    assert done.stdout.splitlines() == ["full 2", "a.jsonl", "room 0"], done
    assert "the disk is full" in done.stderr
    assert "free some space there, and call this again" in done.stderr
    assert "Traceback" not in done.stderr
    assert [row["trial"]["index"] for row in read_blobs(tmp_path / "sealed.h5")] == list(range(20))


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO])
def test_a_failing_disk_is_one_sentence_with_a_remedy(number: int, capsys: pytest.CaptureFixture[str]) -> None:
    def main() -> int:
        raise ExceptionGroup("several", [ValueError("a"), OSError(number, os.strerror(number), "/data/a.jsonl")])

    with pytest.raises(SystemExit) as end:
        errors.program(main)
    told = capsys.readouterr().err
    assert end.value.code == 2
    assert told.startswith("error: /data/a.jsonl: the ")
    assert "do:" in told


def test_other_errors_keep_their_traceback() -> None:
    def main() -> int:
        raise OSError(errno.ENOENT, "no such file")

    with pytest.raises(OSError, match="no such file"):
        errors.program(main)
