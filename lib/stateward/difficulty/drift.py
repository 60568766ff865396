"""Drift: how hard the pool's tasks are for a later checkpoint, and which of them have left the useful bands.

Training makes tasks easier; those that now always succeed give groups without variance. Reads the pool and a probe of
its tasks under the later policy; writes ``RUN_DIR/drift/LABEL``: `drift.jsonl`, one line a task; `train.yaml`, the
tasks that are still useful; `manifest.json`; a plot of the moves. The pool itself is left as it is.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from stateward.config import Config
from stateward.difficulty.bands import Bands
from stateward.difficulty.counts import Counts, sorted_sources
from stateward.difficulty.decide import TRAIN, Decision
from stateward.difficulty.inputs import read_counts
from stateward.difficulty.lists import selector_yaml
from stateward.difficulty.plots import can_plot, drift_plot
from stateward.difficulty.pool_files import pretty
from stateward.difficulty.publish import publish
from stateward.difficulty.selection import Filters, refuse_unfinished, select
from stateward.errors import UserError
from stateward.store import hash_file

DRIFT = "drift"


@dataclass(kw_only=True)
class Drift:
    """The pool under a later policy.

    Attributes:
        before: uid → line of the pool's difficulty.jsonl, of its training tasks.
        after: decisions on the same tasks by the later policy's trials.
    """

    folder: Path
    bands: Bands
    before: dict[str, dict[str, Any]]
    after: list[Decision]
    changed: bool = False

    @property
    def probed(self) -> list[Decision]:
        return [d for d in self.after if d.counts.valid]

    @property
    def left(self) -> list[Decision]:
        """Tasks that were probed again and are not kept any more."""
        return [d for d in self.probed if d.decision != TRAIN]

    def moves(self) -> dict[tuple[str, str], int]:
        """(band in the pool, band now) → tasks."""
        return dict(Counter((self.before[d.uid]["band"], d.estimate.band) for d in self.probed))

    def lines(self) -> list[str]:
        """The summary, a line each: rates, the table of moves, the tasks that left."""
        n = max(len(self.probed), 1)
        then = sum(self.before[d.uid]["rate"] or 0.0 for d in self.probed) / n
        now = sum(d.counts.passes / d.counts.valid for d in self.probed) / n
        out = [
            f"{len(self.probed)} of the pool's {len(self.before)} training tasks were probed again;"
            f" mean success rate {then:.1%} → {now:.1%}"
        ]
        width = max(map(len, self.bands.names))
        out.append("  pool band".ljust(width + 4) + "now: " + "  ".join(self.bands.names))
        moves = self.moves()
        for before in self.bands.names:
            cells = [str(moves.get((before, after), 0)).rjust(len(after)) for after in self.bands.names]
            if any(moves.get((before, after), 0) for after in self.bands.names):
                out.append(f"  {before:<{width}}       " + "  ".join(cells))
        easier = sum(self._step(d) > 0 for d in self.left)
        out.append(f"{len(self.left)} tasks left the useful bands ({easier} became easier), {len(self.useful())} stay")
        for d in self.left[:20]:
            out.append(
                f"  {d.uid}: {self.before[d.uid]['band']} → {d.estimate.band} ({d.counts.passes} of {d.counts.valid})"
            )
        if len(self.left) > 20:
            out.append(f"  and {len(self.left) - 20} more in {self.folder / 'drift.jsonl'}")
        return out

    def useful(self) -> list[str]:
        """uids that the later policy's trials keep."""
        return [d.uid for d in self.probed if d.decision == TRAIN]

    def rows(self) -> list[dict[str, Any]]:
        """The lines of drift.jsonl."""
        keys = ("passes", "valid", "rate", "band")
        return [
            {
                "uid": d.uid,
                "domain": d.domain,
                "before": {k: self.before[d.uid][k] for k in keys},
                "after": {k: d.to_json()[k] for k in (*keys, "mass", "interval", "basis")},
                "step": self._step(d) if d.counts.valid else None,
                "stays": d.decision == TRAIN if d.counts.valid else None,
                "reasons": d.reasons,
            }
            for d in self.after
        ]

    def _step(self, d: Decision) -> int:
        """Bands moved; positive is easier."""
        return self.bands.names.index(d.estimate.band) - self.bands.names.index(self.before[d.uid]["band"])


def reprobe(
    config: Config, inputs: Sequence[Path], *, label: str = "", dry_run: bool = False, unfinished: bool = False
) -> Drift:
    """Compare the pool in ``config.run_dir`` with probe results `inputs` of a later policy on its tasks.

    Args:
        label: names the folder under ``drift/``; the later policy's fingerprint, if empty.
        unfinished: take a probe that has not ended.

    Raises:
        UserError: no pool, results of the pool's own policy, none of its tasks, or bad input.
    """
    pool = Path(config.run_dir) / "pool"
    bands = Bands.from_config(config.curate.bands)
    before = _pool_tasks(pool, bands)
    counts = read_counts(inputs, config, what="reprobe")
    then = {s["policy"] for s in json.loads((pool / "manifest.json").read_text())["inputs"]["probe"]}
    if counts.policy and counts.policy in then:
        raise UserError(
            f"the reprobe's policy {counts.policy!r} is the one that the pool was made for",
            "drift is the change from one policy to a later one",
            "name the probe of a later checkpoint",
        )
    counts.tasks = {uid: c for uid, c in counts.tasks.items() if uid in before}
    if not counts.tasks:
        raise UserError(
            "the reprobe holds no task of the pool",
            do=f"probe with tasks.train={pool / 'train.yaml'} and the later policy.model",
        )
    after = select(config, counts, Filters(domains={uid: row["domain"] for uid, row in before.items()}))
    if not unfinished:
        refuse_unfinished(after, counts, config)
    name = label or counts.policy or counts.sources[0].sha256[:12]
    if "/" in name or name.startswith("."):
        raise UserError(f"label {name!r} cannot name a folder", do="use a plain word such as step50")
    drift = Drift(folder=Path(config.run_dir) / DRIFT / name, bands=bands, before=before, after=after)
    if not dry_run:
        drift.changed = publish(drift.folder, _files(drift, counts, pool))
    return drift


def _files(drift: Drift, counts: Counts, pool: Path) -> dict[str, bytes]:
    files = {
        "drift.jsonl": b"".join(orjson.dumps(row) + b"\n" for row in drift.rows()),
        "train.yaml": selector_yaml(drift.useful()),
    }
    if can_plot():
        files["plots/moves.svg"] = drift_plot(drift.moves(), drift.bands)
    manifest = {
        "stage": DRIFT,
        "inputs": {
            "pool": hash_file(pool / "manifest.json"),
            "reprobe": [s.identity() for s in sorted_sources(counts)],
        },
        "paths": {"reprobe": [s.path for s in sorted_sources(counts)]},
        "counts": {
            "pool": len(drift.before),
            "probed": len(drift.probed),
            "left": len(drift.left),
            "moves": [[before, after, n] for (before, after), n in sorted(drift.moves().items())],
        },
    }
    return {**files, "manifest.json": pretty(manifest)}


def _pool_tasks(pool: Path, bands: Bands) -> dict[str, dict[str, Any]]:
    file = pool / "difficulty.jsonl"
    if not (pool / "DONE").is_file() or not file.is_file():
        raise UserError(f"{pool}: no finished pool there", do="run jobs/curate.py first")
    rows = {}
    for line, text in enumerate(file.read_bytes().splitlines(), 1):
        try:
            row = orjson.loads(text)
            if row["decision"] == TRAIN:
                rows[str(row["uid"])] = row
            known = row["band"] in bands.names
        except (orjson.JSONDecodeError, KeyError, TypeError) as error:
            raise UserError(f"{file}:{line}: not a line of a pool", repr(error), "run jobs/curate.py again") from error
        if not known:
            raise UserError(
                f"{file}:{line}: band {row['band']!r} is not one of {', '.join(bands.names)}",
                "the pool was made with other bands",
                "use the pool's configuration",
            )
    return rows
