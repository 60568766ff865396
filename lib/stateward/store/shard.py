"""Sealed shards: one HDF5 file of columns, and every whole record as compressed JSON.

Layout of a shard of n records::

    columns/NAME     [n]     one dataset a column, see `COLUMNS`
    blob/bytes       [sum]   the records' JSON, each zlib-compressed on its own, one after the other
    blob/end         [n]     where each record ends in `bytes`
    blob/crc         [n]     CRC-32 of each record's compressed bytes

Columns are uncompressed so that all of them are read in milliseconds; figures never touch the blobs. Each has HDF5's
Fletcher-32 checksum, which a reader verifies; shards from before it have none.
The blobs are not an HDF5 variable-length type: that lives in the global heap, which no filter compresses and which
reads ten times slower.

HDF5's own locks fail on NFS, and one writer a file is ensured by the journal's lock, so they are off here.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("HDF5_USE_FILE_LOCKING", "FALSE")  # read by the HDF5 library when it is loaded

import numpy as np
import numpy.typing as npt
import orjson
from isal import isal_zlib

from stateward.store.durable import fsync_directory
from stateward.store.journal import Journal, json_bytes, read_journal

Column = npt.NDArray[Any]

FORMAT = 1
PARTIES = ("policy", "user", "judge")
TOKEN_KINDS = ("requests", "prompt", "cached", "completion", "reasoning")
PHASES = ("total", "sample", "tools", "user", "open", "grade")

#: Column → kind: S (UTF-8 text), i (int64) or f (float64).
COLUMNS: dict[str, str] = {
    "uid": "S",
    "index": "i",
    "policy": "S",
    "settings": "S",
    "outcome": "S",
    "reward": "f",
    "domain": "S",
    "finish": "S",
    "fault_kind": "S",
    "turns": "i",
    "tool_calls": "i",
    "tool_errors": "i",
    **{f"{party}_{kind}": "i" for party in PARTIES for kind in TOKEN_KINDS},
    **{f"seconds_{phase}": "f" for phase in PHASES},
    "attempt": "i",
    "started": "f",
    "seed": "i",
    "initial_state_hash": "S",
}


def row_columns(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """The values of `COLUMNS`, in order, of one record's JSON (`EpisodeRecord.to_json`).

    Raises KeyError on a row that is not an episode record.
    """
    trial, usage, seconds = row["trial"], row.get("usage", {}), row.get("seconds", {})
    reward = row["reward"]
    return (
        trial["uid"],
        trial["index"],
        trial["policy"],
        trial["settings"],
        row["outcome"],
        float("nan") if reward is None else reward,
        row.get("domain", ""),
        row.get("finish", ""),
        row.get("fault_kind", ""),
        row.get("turns", 0),
        row.get("tool_calls", 0),
        row.get("tool_errors", 0),
        *(usage.get(party, {}).get(kind, 0) for party in PARTIES for kind in TOKEN_KINDS),
        *(seconds.get(phase, 0.0) for phase in PHASES),
        row.get("attempt", 1),
        row.get("started", 0.0),
        row.get("seed", 0),
        row.get("initial_state_hash", ""),
    )


def make_columns(rows: Sequence[tuple[Any, ...]]) -> dict[str, Column]:
    """Numpy columns, each [n], of the rows that `row_columns` gave. Text columns hold UTF-8 bytes (dtype S)."""
    if not rows:
        return {name: np.empty(0, "S1" if kind == "S" else f"{kind}8") for name, kind in COLUMNS.items()}
    out: dict[str, Column] = {}
    for (name, kind), values in zip(COLUMNS.items(), zip(*rows, strict=True), strict=True):
        out[name] = np.array([v.encode() for v in values]) if kind == "S" else np.array(values, f"{kind}8")
        if out[name].dtype == "S0":  # all empty
            out[name] = out[name].astype("S1")
    return out


def seal(journal: Path | str, shard: Path | str) -> None:
    """Turn a journal into a shard, durably, and remove the journal.

    The shard appears under its name only when it is whole (written to ``.tmp``, synced, renamed), so a killed sealing
    loses nothing. If `shard` is already there, because a sealing was killed before it removed the journal or because
    a later job continued this shard, its records are kept and those of the journal that it lacks are added.

    Raises:
        UserError: another process still writes the journal.
        FileNotFoundError: there is no journal.
        KeyError: a row is not an episode record; nothing is changed.
    """
    journal, shard = Path(journal), Path(shard)
    if not journal.exists():
        raise FileNotFoundError(journal)
    with Journal(journal):  # holds the lock while the records move
        bodies = _bodies(journal, shard)
        temporary = shard.with_name(shard.name + ".tmp")
        shard.parent.mkdir(parents=True, exist_ok=True)
        write_shard(temporary, bodies)
        os.replace(temporary, shard)
        fsync_directory(shard.parent)
        journal.unlink()
        fsync_directory(journal.parent)


def write_shard(path: Path, rows: Iterator[dict[str, Any]], *, fast: bool = False) -> None:
    """Write record rows to a new HDF5 file at `path`, synced.

    The file is made in memory, twice its size, and written as bytes: HDF5 crashes when a disk is full while it writes.
    Raises OSError where there is no room; nothing is left under `path` then.

    `fast` compresses with ISA-L's level 1: the same format a fourth larger, at a tenth of zlib's default time.
    """
    compress = (lambda data: isal_zlib.compress(data, 1)) if fast else zlib.compress
    import h5py  # here, as it takes 0.2 s that a job's --help does not have

    values: list[tuple[Any, ...]] = []
    ends: list[int] = []
    crcs: list[int] = []
    pending = bytearray()
    written = 0
    with h5py.File(path.name, "w", driver="core", backing_store=False, libver=("v110", "v110")) as file:
        blob = file.create_group("blob")
        out = blob.create_dataset("bytes", (0,), "u1", maxshape=(None,), chunks=(1 << 20,))

        def flush() -> None:
            nonlocal written
            out.resize((written + len(pending),))
            out[written:] = np.frombuffer(bytes(pending), "u1")
            written += len(pending)
            pending.clear()

        for row in rows:
            values.append(row_columns(row))
            packed = compress(_fast_json(row))
            pending += packed
            ends.append(written + len(pending))
            crcs.append(zlib.crc32(packed))
            if len(pending) >= 1 << 22:
                flush()
        flush()
        for name, column in (("end", np.array(ends, "i8")), ("crc", np.array(crcs, "u4"))):
            blob.create_dataset(name, data=column, **_checked(column))
        group = file.create_group("columns")
        for name, column in make_columns(values).items():
            group.create_dataset(name, data=column, **_checked(column))
        file.attrs["format"] = FORMAT
        file.attrs["records"] = len(values)
        file.flush()
        image = file.id.get_file_image()
    try:
        with open(path, "wb") as written_file:
            written_file.write(image)
            written_file.flush()
            os.fsync(written_file.fileno())
    except OSError:
        path.unlink(missing_ok=True)
        raise


def _checked(column: Column) -> dict[str, Any]:
    """How a column is stored: with a checksum, which HDF5 verifies when it is read. An empty one has none.

    In one chunk where it fits into 1 MB, so that few small reads become none.
    """
    rows = max(1, (1 << 20) // column.dtype.itemsize)
    return {"fletcher32": True, "chunks": (min(len(column), rows),)} if len(column) else {}


def read_columns(shard: Path, names: Iterable[str] = COLUMNS) -> dict[str, Column]:
    """The columns `names` of a sealed shard, each [n]; the others are not read.

    Raises:
        KeyError: a name that the shard does not have.
    """
    import h5py

    out: dict[str, Column] = {}
    with open_shard(shard) as file:
        group = file["columns"].id
        for name in names:
            # The low-level calls: a stage may have hundreds of shards, and these take a fifth of the time.
            data = h5py.h5d.open(group, name.encode())
            out[name] = np.empty(data.shape, data.dtype)
            try:
                data.read(h5py.h5s.ALL, h5py.h5s.ALL, out[name])
            except OSError as error:  # HDF5 does not say which file it was
                raise OSError(f"{shard}: column {name!r} was damaged after it was sealed: {error}") from error
    return out


def read_blobs(shard: Path, rows: Sequence[int] | None = None) -> Iterator[dict[str, Any]]:
    """The whole records at positions `rows` (all, if None), decoded one at a time.

    Raises:
        OSError: a record's bytes fail their checksum.
    """
    with open_shard(shard) as file:
        ends = file["blob/end"][()]
        crcs = file["blob/crc"][()]
        data = file["blob/bytes"]
        for i in range(len(ends)) if rows is None else rows:
            packed = data[(ends[i - 1] if i else 0) : ends[i]].tobytes()
            if zlib.crc32(packed) != crcs[i]:
                raise OSError(f"{shard}: record {i} fails its checksum; the file was damaged after it was sealed")
            yield json.loads(isal_zlib.decompress(packed))


def open_shard(shard: Path) -> Any:
    """The shard as an open `h5py.File`, read-only. Raises OSError unless it is a whole shard of this format."""
    import h5py

    try:
        file = h5py.File(shard, "r", locking=False)
    except OSError as error:  # HDF5 does not say which file it was
        raise OSError(f"{shard}: {error}") from error
    if file.attrs.get("format") != FORMAT:
        found = file.attrs.get("format")
        file.close()
        raise OSError(f"{shard}: shard format {found}; this version reads format {FORMAT}")
    return file


def _fast_json(row: dict[str, Any]) -> bytes:
    try:
        return orjson.dumps(row)
    except TypeError:  # an integer of more than 64 bits, or half a surrogate pair
        return json_bytes(row)


def _bodies(journal: Path, shard: Path) -> Iterator[dict[str, Any]]:
    seen: set[bytes] = set()
    if shard.exists():
        for row in read_blobs(shard):
            seen.add(record_digest(row))
            yield row
    for row in read_journal(journal):
        if not seen or record_digest(row) not in seen:
            yield row


def record_digest(row: Mapping[str, Any]) -> bytes:
    """Tells a copy of one run of a trial from another run of it: key, attempt, start and outcome."""
    trial = row["trial"]
    parts = (trial["uid"], trial["index"], trial["policy"], trial["settings"], row.get("attempt", 1))
    return repr((*parts, float(row.get("started", 0.0)), row["outcome"])).encode()
