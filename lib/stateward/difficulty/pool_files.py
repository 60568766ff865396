"""The files of a pool, as bytes, and the summary of it that is printed."""

from __future__ import annotations

import hashlib
import importlib.metadata
import platform
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from stateward.difficulty.bands import Bands
from stateward.difficulty.counts import Counts
from stateward.difficulty.decide import DROP, TEST, TRAIN, Decision
from stateward.difficulty.guard import Evidence
from stateward.difficulty.lists import selector_yaml

#: Packages whose version could change a byte.
_PACKAGES = ("stateward", "numpy", "scipy", "datasketch", "orjson")


@dataclass(kw_only=True)
class Pool:
    """A curated pool. `changed` is False if it stood there already, byte for byte, or nothing was to be written."""

    folder: Path
    bands: Bands
    counts: Counts
    decisions: list[Decision]
    evidence: Evidence
    plotted: bool = False
    changed: bool = False

    def uids(self, decision: str) -> list[str]:
        """The tasks with this decision (``train``, ``test``, ``drop``), sorted."""
        return [d.uid for d in self.decisions if d.decision == decision]

    def tally(self) -> dict[str, Any]:
        """Counts for manifest and summary: tasks by decision and band, and trials planned, run and void."""
        taken = [d for d in self.decisions if d.decision != DROP]
        probed = [d.counts for d in self.decisions if d.counts.valid or d.counts.voids]
        planned, valid = sum(c.planned for c in probed), sum(c.valid for c in probed)
        return {
            "tasks": {name: len(self.uids(name)) for name in (TRAIN, TEST, DROP)},
            "probed": len(probed),
            "bands": {
                name: {
                    "probed": sum(d.estimate.band == name and d.counts.valid > 0 for d in self.decisions),
                    "taken": sum(d.estimate.band == name for d in taken),
                }
                for name in self.bands.names
            },
            "basis": dict(sorted(Counter(d.estimate.basis for d in self.decisions).items())),
            "trials": {
                "planned": planned,
                "valid": valid,
                "passes": sum(c.passes for c in probed),
                "voids": sum(c.voids for c in probed),
                "saved_share": round(1 - valid / planned, 6) if planned else 0.0,
            },
        }

    def lines(self) -> list[str]:
        """The summary, a line each."""
        tally = self.tally()
        trials = tally["trials"]
        out = [
            f"probed {tally['probed']} tasks: {trials['passes']} of {trials['valid']} valid trials passed,"
            f" {trials['voids']} void; {trials['saved_share']:.1%} of {trials['planned']} planned trials not needed"
        ]
        width = max(len(name) for name in self.bands.names)
        for name, n in tally["bands"].items():
            out.append(f"  {name:<{width}}  {n['probed']:>6} tasks  {n['taken']:>6} taken")
        out.append(f"train {tally['tasks'][TRAIN]}, test {tally['tasks'][TEST]}, dropped {tally['tasks'][DROP]}")
        if not self.plotted:
            out.append("no plots: matplotlib is not installed (it comes with the extras practice and cluster)")
        near = self.evidence.nearest
        out.append(
            f"disjoint from the {len(self.evidence.benchmark)} tasks of the benchmark"
            + (f"; the nearest texts have similarity {near[0].similarity:.2f}" if near else "")
        )
        return out


def pool_files(
    pool: Pool, inputs: Mapping[str, Any], paths: Mapping[str, Any], plots: Mapping[str, bytes]
) -> dict[str, bytes]:
    """Name → content of every file of the pool's folder; depends on the arguments alone.

    Args:
        inputs: everything that the pool depends on. paths: where it was found.
    """
    files = {
        "train.yaml": selector_yaml(pool.uids(TRAIN)),
        "difficulty.jsonl": b"".join(orjson.dumps(d.to_json()) + b"\n" for d in pool.decisions),
        "contamination.json": pretty(pool.evidence.to_json()),
        **{f"plots/{name}": content for name, content in plots.items()},
    }
    if pool.uids(TEST):
        files["test.yaml"] = selector_yaml(pool.uids(TEST))
    manifest = {
        "stage": "pool",
        "inputs": inputs,
        "paths": paths,
        "counts": pool.tally(),
        "outputs": {name: hashlib.sha256(files[name]).hexdigest() for name in sorted(files)},
        "versions": {
            "python": platform.python_version(),
            **{name: importlib.metadata.version(name) for name in _PACKAGES},
        },
    }
    return {**files, "manifest.json": pretty(manifest), "DONE": pretty({"inputs": inputs})}


def pretty(value: Any) -> bytes:
    """JSON for files that people open."""
    return orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
