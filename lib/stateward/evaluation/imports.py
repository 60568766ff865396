"""Import results of the public framework as an evaluation stage, and export one, as JSONL or CSV."""

from __future__ import annotations

import csv
import itertools
import json
import multiprocessing
import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import yaml
from isal import isal_zlib

from stateward.errors import UserError
from stateward.evaluation.interchange import from_decode_result, to_decode_result, trial_of
from stateward.outcome import Outcome, fingerprint
from stateward.store import Records, Stage, hash_file, read_records
from stateward.store.shard import COLUMNS, write_shard
from stateward.store.stage import write_json

_SHAPE = (KeyError, TypeError, AttributeError, ValueError)


@dataclass(frozen=True, kw_only=True)
class Imported:
    """What an import took in: lines, tasks, voids; `skipped` is 1 if a broken last line was left out."""

    lines: int
    tasks: int
    voids: int
    skipped: int


@dataclass(frozen=True, kw_only=True)
class _Line:
    """Where a line stands in its file, and which trial of its task it is by position."""

    start: int
    size: int
    index: int


def import_results(
    run_dir: Path, label: str, file: Path, *, salvage: bool = False, accept_duplicates: bool = False, model: str = ""
) -> Imported:
    """Make ``RUN_DIR/eval/LABEL`` of a results file, with every record in sealed shards.

    The settings are those of ``<stem>_run_metadata.yaml`` beside the file, as the framework writes it; without it the
    file's hash stands for them, and a comparison with another run must be allowed by name.

    Args:
        salvage: skip a broken last line (of a run that was killed) instead of refusing the file.
        accept_duplicates: equal lines are trials of their own; otherwise they are refused.
        model: name of the policy, for the price list.

    Raises:
        UserError: the label is taken, the file is not there or empty, a line is not a result.
    """
    if not file.is_file():
        raise UserError(f"{file}: no such results file", do="name the JSONL that the framework wrote")
    stage = Stage(run_dir, f"eval/{label}")
    if stage.manifest:
        raise UserError(f"{stage.path} is there already", "an import does not add to a run", "use another label")
    lines, skipped = _scan(file, salvage, accept_duplicates)
    if not lines:
        raise UserError(f"{file} holds no results", do="name the JSONL that the framework wrote")
    identity = hash_file(file)
    facts = _settings(file) or {"imported_from": identity}
    policy, settings = fingerprint({"label": label, "model": model}), fingerprint(facts)
    parts = max(1, min(os.cpu_count() or 1, 16, len(lines) // 64))
    bounds = [len(lines) * i // parts for i in range(parts + 1)]
    jobs = [
        (str(file), lines[a:b], str(stage.shards / f"{n:04}-00.h5"), policy, settings)
        for n, (a, b) in enumerate(itertools.pairwise(bounds))
    ]
    stage.shards.mkdir(parents=True, exist_ok=True)
    try:
        found = _import_parts(jobs)
    except UserError:
        for job in jobs:
            Path(job[2]).unlink(missing_ok=True)
        raise
    uids = list(dict.fromkeys(uid for part in found for uid in part[0]))
    trials = {t for part in found for t in part[3]}
    if trials:  # an export of ours brings its own identity
        if len(trials) > 1 or any(len(part[3]) == 0 for part in found):
            raise UserError(f"{file} mixes runs", "its rows have several policies or settings", "import each alone")
        policy, settings = next(iter(trials))
    planned = 1 + max(part[2] for part in found)
    inputs = {"policy": policy, "settings": facts, "trials": planned, "stop_rule": "fixed", "imported": identity}
    stage.begin({}, inputs)
    write_json(stage.path / "plan" / "shard-0000.json", {"uids": uids, "settings": settings, "model": model or label})
    stage.done(source=str(file), skipped=skipped)
    return Imported(lines=len(lines), tasks=len(uids), voids=sum(part[1] for part in found), skipped=skipped)


def export_jsonl(records: Records, file: Path) -> int:
    """Write every record in the public format; returns the number of lines."""
    n = 0
    with open(file, "wb") as out:
        for record in records:
            out.write(orjson.dumps(to_decode_result(record)) + b"\n")
            n += 1
    return n


def export_csv(records: Records, file: Path) -> int:
    """Write the columns of every record, one row a trial; a void's reward is empty. Returns the number of rows."""
    with open(file, "w", encoding="utf-8", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(COLUMNS)
        for row in zip(*(records.columns[name].tolist() for name in COLUMNS), strict=True):
            writer.writerow([_cell(v.decode()) if isinstance(v, bytes) else "" if v != v else v for v in row])
    return len(records)


def _cell(text: str) -> str:
    """A text that a spreadsheet shows and does not run: one that it would take for a formula begins with a quote."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r", "\n")) else text


def export_run(run_dir: Path, label: str, file: Path) -> int:
    """Write the run `label` to `file`, as JSONL or CSV by its ending; returns the number of trials.

    Raises:
        UserError: no such run, or another ending.
    """
    write = {".jsonl": export_jsonl, ".csv": export_csv}.get(file.suffix)
    if write is None:
        raise UserError(f"{file}: its ending says no format", do="end the name in .jsonl or .csv")
    records = read_records(run_dir / "eval" / label, columns_only=file.suffix == ".csv")
    file.parent.mkdir(parents=True, exist_ok=True)
    return write(records, file)


def _scan(file: Path, salvage: bool, accept_duplicates: bool) -> tuple[list[_Line], int]:
    """Every line's place and trial index, and how many were skipped. Only the last may be, and only if `salvage`.

    Two equal lines are one trial twice, as when files were joined: the times of two trials hardly ever agree.
    """
    seen: Counter[bytes] = Counter()
    known: dict[tuple[int, int], int] = {}
    lines: list[_Line] = []
    start = number = 0
    last = b""
    with open(file, "rb") as source:
        for number, line in enumerate(source, 1):
            if line.strip():
                uid = _uid(line) or _parsed_uid(file, number, line, salvage)
                first = known.setdefault((len(line), isal_zlib.crc32(line)), number)
                if first != number and not accept_duplicates:
                    raise UserError(
                        f"{file}:{number} is line {first} again",
                        "the same trial would count twice; were files joined?",
                        "remove the repeated lines, or give --accept-duplicates if they are trials of their own",
                    )
                lines.append(_Line(start=start, size=len(line), index=seen[uid]))
                seen[uid] += 1
                last = line
            start += len(line)
    try:
        orjson.loads(last or b"{}")
    except orjson.JSONDecodeError as error:
        if not salvage:
            raise _broken(file, number, error, last=True) from None
        return lines[:-1], 1
    return lines, 0


#: The uid where the framework writes it, at the start of the line, if it has no escapes.
_FIRST = re.compile(rb'\{\s*"uid"\s*:\s*("[^"\\]*")')


def _uid(line: bytes) -> bytes | None:
    """The uid as JSON text, if it stands first in the line; None if the line must be parsed."""
    found = _FIRST.match(line)
    return found[1] if found else None


def _parsed_uid(file: Path, number: int, line: bytes, salvage: bool) -> bytes:
    try:
        return orjson.dumps(orjson.loads(line)["uid"])
    except _SHAPE as error:
        if salvage and not line.endswith(b"\n"):
            return b""  # the last line; left out below
        raise _broken(file, number, error, last=not line.endswith(b"\n")) from None


def _broken(file: Path, number: int, error: Exception, last: bool) -> UserError:
    do = "give --salvage to skip it: the run was probably killed while it wrote" if last else "mend or remove the line"
    return UserError(f"{file}:{number} is not a result of the framework", f"{type(error).__name__}: {error}", do)


_Job = tuple[str, list[_Line], str, str, str]
_Part = tuple[list[str], int, int, set[tuple[str, str]]]


def _import_parts(jobs: list[_Job]) -> list[_Part]:
    """One part here, each of the others in a process of its own."""
    if len(jobs) == 1:
        return [_import_part(jobs[0])]
    # spawn: this process may have threads of numpy's, and nothing here forks from a process with threads.
    with multiprocessing.get_context("spawn").Pool(len(jobs) - 1) as pool:
        others = pool.map_async(_import_part, jobs[1:], chunksize=1)
        found = [_import_part(jobs[0]), *others.get()]
        pool.close()
        pool.join()
    return found


def _import_part(job: _Job) -> _Part:
    """Write one shard; returns its tasks, voids, largest index, and the identities that its rows brought along."""
    file, lines, shard, policy, settings = job
    uids: dict[str, None] = {}
    own: set[tuple[str, str]] = set()
    voids = largest = 0

    def rows() -> Iterator[dict[str, Any]]:
        nonlocal voids, largest
        with open(file, "rb") as source:
            for line in lines:
                source.seek(line.start)
                try:
                    row = orjson.loads(source.read(line.size))
                    record = from_decode_result(row, index=line.index, policy=policy, settings=settings)
                    trial = trial_of(row)
                except _SHAPE as error:
                    with open(file, "rb") as again:
                        number = again.read(line.start).count(b"\n") + 1
                    raise _broken(Path(file), number, error, last=False) from None
                if trial is not None:
                    own.add((trial.policy, trial.settings))
                uids[record["trial"]["uid"]] = None
                voids += record["outcome"] == Outcome.VOID.value
                largest = max(largest, record["trial"]["index"])
                yield record

    write_shard(Path(shard), rows(), fast=True)
    return list(uids), voids, largest, own


def _settings(file: Path) -> dict[str, Any]:
    beside = file.with_name(f"{file.stem}_run_metadata.yaml")
    try:
        facts = yaml.safe_load(beside.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except yaml.YAMLError as error:
        raise UserError(f"{beside} is not YAML", str(error), "restore it, or move it away") from error
    if not isinstance(facts, dict):
        raise UserError(
            f"{beside} holds no mapping", "it is not what the framework writes", "restore it, or move it away"
        )
    for name in ("run_start_dt", "run_duration (sec)"):
        facts.pop(name, None)
    return {"imported": json.loads(json.dumps(facts, default=str))}
