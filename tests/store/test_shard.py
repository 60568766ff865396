from __future__ import annotations

import dataclasses
import math
import multiprocessing
import os
import random
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stateward.errors import UserError
from stateward.store import Journal, read_records, seal
from stateward.store.shard import COLUMNS, read_blobs, read_columns


def write(path: Path, *records: Any) -> None:
    with Journal(path) as journal:
        for r in records:
            journal.append(r.to_json())


def same(a: Any, b: Any) -> bool:
    return bool(a.to_json() == b.to_json())


def test_sealing_keeps_everything(tmp_path: Path, make_record: Any) -> None:
    records = [make_record(index=i, outcome=o) for i, o in enumerate(["pass", "fail", "void"])]
    write(tmp_path / "a.jsonl", *records)
    before = list(read_records(tmp_path))
    seal(tmp_path / "a.jsonl", tmp_path / "a.h5")
    assert sorted(os.listdir(tmp_path)) == ["a.h5"]
    stored = read_records(tmp_path)
    assert all(same(a, b) for a, b in zip(stored, records, strict=True))
    assert all(same(a, b) for a, b in zip(before, records, strict=True))
    c = stored.columns
    assert set(c) == set(COLUMNS)
    assert c["outcome"].tolist() == [b"pass", b"fail", b"void"]
    assert c["reward"][0] == 1
    assert math.isnan(c["reward"][2])
    assert c["policy_cached"].tolist() == [600] * 3
    assert c["judge_prompt"].tolist() == [0] * 3
    assert c["seconds_sample"].tolist() == [2.0] * 3


def test_columns_alone_give_records_without_bodies(tmp_path: Path, make_record: Any) -> None:
    write(tmp_path / "a.jsonl", make_record(outcome="fail", seed=7, attempt=2))
    seal(tmp_path / "a.jsonl", tmp_path / "a.h5")
    (light,) = read_records(tmp_path, columns_only=True)
    (whole,) = read_records(tmp_path)
    assert light.messages == []
    assert whole.messages
    light = dataclasses.replace(light, messages=whole.messages, seconds=whole.seconds)
    assert same(light, whole)


def test_only_the_columns_that_are_named_are_read(tmp_path: Path, make_record: Any) -> None:
    write(tmp_path / "a.jsonl", *(make_record(index=i, seed=7 + i) for i in range(3)))
    seal(tmp_path / "a.jsonl", tmp_path / "a.h5")
    every = read_columns(tmp_path / "a.h5")
    assert list(every) == list(COLUMNS)
    found = read_columns(tmp_path / "a.h5", ("seed", "domain"))
    assert list(found) == ["seed", "domain"]
    assert found["seed"].tolist() == [7, 8, 9]
    assert found["domain"].tolist() == every["domain"].tolist()
    with pytest.raises(KeyError):
        read_columns(tmp_path / "a.h5", ("no such column",))


def test_a_sealing_killed_before_the_journal_goes_loses_and_doubles_nothing(tmp_path: Path, make_record: Any) -> None:
    records = [make_record(index=i) for i in range(3)]
    write(tmp_path / "a.jsonl", *records)
    journal = (tmp_path / "a.jsonl").read_bytes()
    seal(tmp_path / "a.jsonl", tmp_path / "a.h5")
    (tmp_path / "a.jsonl").write_bytes(journal)  # as if the process had died between rename and unlink
    (tmp_path / "b.h5.tmp").write_bytes(b"half")  # and another one while it wrote
    found = read_records(tmp_path)
    assert (len(found), found.copies, found.duplicates) == (3, 3, [])
    seal(tmp_path / "a.jsonl", tmp_path / "a.h5")
    assert len(list(read_blobs(tmp_path / "a.h5"))) == 3


def test_a_journal_goes_once_its_shard_is_durable(
    tmp_path: Path, make_record: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "a.jsonl", make_record())
    done: list[tuple[str, str]] = []
    fsync, replace, unlink = os.fsync, os.replace, Path.unlink

    def noted_fsync(fd: int) -> None:
        done.append(("fsync", Path(os.readlink(f"/proc/self/fd/{fd}")).name))
        fsync(fd)

    def noted_replace(old: Path, new: Path) -> None:
        done.append(("rename to", new.name))
        replace(old, new)

    def noted_unlink(path: Path) -> None:
        done.append(("remove", path.name))
        unlink(path)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(os, "replace", noted_replace)
    monkeypatch.setattr(Path, "unlink", noted_unlink)
    seal(tmp_path / "a.jsonl", tmp_path / "sealed" / "a.h5")
    assert done == [
        ("fsync", "a.h5.tmp"),
        ("rename to", "a.h5"),
        ("fsync", "sealed"),
        ("remove", "a.jsonl"),
        ("fsync", tmp_path.name),
    ]


def test_records_of_many_megabytes(tmp_path: Path, make_record: Any) -> None:
    """The bodies are written in pieces of 4 MB; each is found again where it lies."""
    rng = random.Random(5)
    texts = [rng.randbytes(size << 20).hex() for size in (3, 2, 3, 0, 5)]
    write(tmp_path / "a.jsonl", *(make_record(index=i, messages=[{"content": text}]) for i, text in enumerate(texts)))
    seal(tmp_path / "a.jsonl", tmp_path / "a.h5")
    assert [row["messages"][0]["content"] for row in read_blobs(tmp_path / "a.h5")] == texts
    assert [row["messages"][0]["content"] for row in read_blobs(tmp_path / "a.h5", [3, 1])] == [texts[3], texts[1]]


def test_a_shard_of_another_format_is_refused(tmp_path: Path, make_record: Any) -> None:
    import h5py

    write(tmp_path / "a.jsonl", make_record())
    seal(tmp_path / "a.jsonl", tmp_path / "a.h5")
    with h5py.File(tmp_path / "a.h5", "r+") as file:
        file.attrs["format"] = 2
    with pytest.raises(OSError, match="shard format 2; this version reads format 1"):
        read_columns(tmp_path / "a.h5")
    (tmp_path / "a.h5").write_bytes(b"half")
    with pytest.raises(OSError, match=r"a\.h5"):
        read_columns(tmp_path / "a.h5")


def test_a_continued_shard_takes_up_new_records(tmp_path: Path, make_record: Any) -> None:
    write(tmp_path / "a.jsonl", make_record(outcome="void"), make_record(index=1))
    seal(tmp_path / "a.jsonl", tmp_path / "a.h5")
    write(tmp_path / "a.jsonl", make_record(attempt=2, started=5.0))
    seal(tmp_path / "a.jsonl", tmp_path / "a.h5")
    found = read_records(tmp_path)
    assert (len(found), found.superseded) == (2, 1)
    assert [r.outcome for r in found] == ["pass", "pass"]


def _seal_slowly(folder: Path, pipe: Any) -> None:
    import stateward.store.shard as shard_module

    def stop(row: Any) -> Any:
        pipe.send("started")
        signal.pause()

    shard_module.row_columns = stop
    seal(folder / "a.jsonl", folder / "a.h5")


def test_a_killed_sealing_leaves_the_journal(tmp_path: Path, make_record: Any) -> None:
    write(tmp_path / "a.jsonl", make_record())
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(target=_seal_slowly, args=(tmp_path, there))
    process.start()
    there.close()
    try:
        assert here.recv() == "started"
        with pytest.raises(UserError):  # nobody else may seal or write meanwhile
            seal(tmp_path / "a.jsonl", tmp_path / "a.h5")
    finally:
        process.kill()
        process.join(60)
    assert len(read_records(tmp_path)) == 1
    seal(tmp_path / "a.jsonl", tmp_path / "a.h5")
    assert sorted(os.listdir(tmp_path)) == ["a.h5"]


def test_a_journal_with_a_writer_is_not_sealed(tmp_path: Path, make_record: Any) -> None:
    with Journal(tmp_path / "a.jsonl") as journal:
        journal.append(make_record().to_json())
        with pytest.raises(UserError, match="another process"):
            seal(tmp_path / "a.jsonl", tmp_path / "a.h5")
    assert os.listdir(tmp_path) == ["a.jsonl"]


def test_a_row_that_is_no_record_is_refused_and_kept(tmp_path: Path) -> None:
    with Journal(tmp_path / "a.jsonl") as journal:
        journal.append({"hello": 1})
    with pytest.raises(KeyError):
        seal(tmp_path / "a.jsonl", tmp_path / "a.h5")
    assert (tmp_path / "a.jsonl").exists()
    assert not (tmp_path / "a.h5").exists()


def test_a_damaged_blob_is_noticed(tmp_path: Path, make_record: Any) -> None:
    import h5py

    write(tmp_path / "a.jsonl", make_record(), make_record(index=1))
    seal(tmp_path / "a.jsonl", tmp_path / "a.h5")
    with h5py.File(tmp_path / "a.h5", "r+") as file:
        end = file["blob/end"][0]
        file["blob/bytes"][end + 5] ^= 1
    records = iter(read_records(tmp_path))
    assert next(records).trial.index == 0
    with pytest.raises(OSError, match="checksum"):
        next(records)


def test_no_record_is_missed_while_another_process_seals(tmp_path: Path, make_record: Any) -> None:
    """Read again and again while journals turn into shards: always all records, never one twice."""
    folder = tmp_path / "shards"
    for shard in range(20):
        write(folder / f"{shard:02}.jsonl", *(make_record(uid=f"t.py:test_{shard}", index=i) for i in range(3)))
    context = multiprocessing.get_context("fork")
    process = context.Process(target=_seal_all, args=(folder,))
    process.start()
    reads = 0
    while process.is_alive() or reads == 0:
        found = read_records(tmp_path)
        assert (len(found), found.duplicates) == (60, [])
        assert sum(1 for _ in found) == 60, "bodies too, though journals vanish"
        reads += 1
    process.join()
    assert process.exitcode == 0
    assert len(list(folder.glob("*.h5"))) == 20


def _seal_all(folder: Path) -> None:
    for path in sorted(folder.glob("*.jsonl")):
        seal(path, path.with_suffix(".h5"))


def test_best_record_of_each_key_against_a_plain_model(tmp_path: Path, make_record: Any) -> None:
    rng = random.Random(3)
    records = [
        make_record(
            uid=f"t.py:test_{rng.randrange(4)}",
            index=rng.randrange(3),
            outcome=rng.choice(["pass", "fail", "void"]),
            attempt=rng.randrange(1, 4),
            started=float(n),
            policy=rng.choice(["p0", "p1"]),
        )
        for n in range(150)
    ]
    for n in range(5):
        write(tmp_path / f"{n}.jsonl", *records[n::5])
        if n % 2:
            seal(tmp_path / f"{n}.jsonl", tmp_path / f"{n}.h5")
    best: dict[str, Any] = {}
    for r in records:
        rank = (r.outcome != "void", r.attempt, r.started)
        old = best.get(r.trial.key)
        if old is None or rank > (old.outcome != "void", old.attempt, old.started):
            best[r.trial.key] = r
    found = read_records(tmp_path)
    order = sorted(best.values(), key=lambda r: (r.trial.uid, r.trial.index, r.trial.policy))
    assert [t.key for t in found.trials()] == [r.trial.key for r in order]
    assert found.columns["started"].tolist() == [r.started for r in order]
    valid = sum(r.outcome != "void" for r in records)
    assert len(found.duplicates) == valid - sum(r.outcome != "void" for r in order)
    assert found.superseded == len(records) - len(order) - len(found.duplicates)
    assert len(found.dropped["uid"]) == len(records) - len(order)
    kept = set(found.columns["started"].tolist())
    assert kept.isdisjoint(found.dropped["started"].tolist())
    assert {r.trial.key: r.started for r in found} == {r.trial.key: r.started for r in order}
    assert found.find("t.py:test_1", 2)


def test_lines_that_were_dropped_are_counted_over_all_journals(tmp_path: Path, make_record: Any) -> None:
    for number in range(2):
        path = tmp_path / f"{number}.jsonl"
        write(path, *(make_record(index=10 * number + i) for i in range(4)))
        lines = path.read_bytes().splitlines(keepends=True)
        lines[1] = lines[1].replace(b'"uid"', b'"uit"')
        path.write_bytes(b"".join(lines)[:-3])
    found = read_records(tmp_path)
    assert (len(found), found.damaged, found.torn) == (4, 2, 2)


def test_empty_places(tmp_path: Path) -> None:
    assert len(read_records(tmp_path)) == 0
    assert list(read_records(tmp_path)) == []
    with pytest.raises(UserError, match="no such directory"):
        read_records(tmp_path / "nowhere")
    Journal(tmp_path / "a.jsonl").close()
    seal(tmp_path / "a.jsonl", tmp_path / "a.h5")
    assert len(read_records(tmp_path)) == 0
    assert np.array_equal(read_columns(tmp_path / "a.h5")["index"], [])
    with pytest.raises(FileNotFoundError):
        seal(tmp_path / "none.jsonl", tmp_path / "b.h5")
    assert sorted(os.listdir(tmp_path)) == ["a.h5"]


def test_values_that_json_libraries_disagree_on(tmp_path: Path, make_record: Any) -> None:
    """Integers beyond 64 bits and half a surrogate pair come back as they were, from journal and from shard."""
    odd = make_record(final_state={"db": {"big": 2**70, "small": -(2**63)}}, messages=[{"content": "a\ud83d b"}])
    write(tmp_path / "a.jsonl", odd)
    for _ in range(2):
        (found,) = read_records(tmp_path)
        assert found.final_state == odd.final_state
        assert found.messages == odd.messages
        if (tmp_path / "a.jsonl").exists():
            seal(tmp_path / "a.jsonl", tmp_path / "a.h5")
