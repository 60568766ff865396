"""Everything that curation reads: probe results, the reference model's results, exclusion lists."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from stateward.config import Config
from stateward.difficulty.counts import Counts, merged
from stateward.difficulty.jsonl import read_jsonl
from stateward.difficulty.lists import read_exclusions
from stateward.difficulty.records import read_stage
from stateward.difficulty.selection import check_reference
from stateward.errors import UserError
from stateward.store import hash_file


def read_counts(inputs: Sequence[Path], config: Config, *, what: str = "probe") -> Counts:
    """Counts of one policy over `inputs`: stage or run directories, and JSONL files.

    Raises:
        UserError: see `read_stage`, `read_jsonl` and `merged`.
    """
    parts = []
    for path in inputs:
        if path.is_dir():
            parts.append(read_stage(path, planned=config.probe.trials, what=what))
        elif path.is_file():
            parts.append(read_jsonl(path, config.curate.fields, what=what))
        else:
            raise UserError(
                f"{path}: neither a directory nor a file", do="name a probe's run directory or a JSONL file"
            )
    return merged(parts, what=what)


def read_reference(config: Config) -> Counts | None:
    """The reference model's counts; None if the gate is off."""
    gate = config.curate.reference
    if not gate.inputs:
        return None
    reference = read_counts([Path(p) for p in gate.inputs], config, what="reference")
    check_reference(reference, gate)
    return reference


def read_excluded(config: Config) -> tuple[dict[str, str], dict[str, str]]:
    """(uid → ``file:line`` that excludes it, file → its hash) over all exclusion lists."""
    excluded: dict[str, str] = {}
    hashes: dict[str, str] = {}
    for name in sorted(config.curate.exclude):
        for uid, where in read_exclusions(Path(name)).items():
            excluded.setdefault(uid, where)
        hashes[name] = hash_file(name)
    return excluded, hashes
