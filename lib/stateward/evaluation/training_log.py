"""The training run's figures, one row a step, from ``train/metrics.jsonl``."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class TrainingLog:
    """Rows by step, ascending; `torn` counts lines that could not be read."""

    rows: list[Row]
    torn: int = 0

    def series(self, read: Callable[[Row], float | None]) -> tuple[list[float], list[float]]:
        """x = step, y = the figure; steps that lack it are left out."""
        pairs = [(float(r["step"]), y) for r in self.rows if (y := read(r)) is not None]
        return [x for x, _ in pairs], [y for _, y in pairs]


def read_training_log(path: Path) -> TrainingLog:
    """The log at `path`; empty if it is not there. A step that was trained again counts once, by its later line."""
    found: dict[int, Row] = {}
    torn = 0
    if path.is_file():
        for text in path.read_text(encoding="utf-8").splitlines():
            try:
                row = json.loads(text)
                found[int(row["step"])] = row
            except (ValueError, KeyError, TypeError):
                torn += 1
    return TrainingLog(rows=[found[step] for step in sorted(found)], torn=torn)


def read_training_logs(run_dir: Path) -> dict[str, TrainingLog]:
    """The logs of a campaign's trainings that have a row: ``train``, and ``seeds/K/train`` of each further seed."""
    folders = [run_dir / "train", *sorted((run_dir / "seeds").glob("*/train"))]
    logs = {str(f.relative_to(run_dir)): read_training_log(f / "metrics.jsonl") for f in folders}
    return {name: log for name, log in logs.items() if log.rows}


def number(name: str, inner: str = "") -> Callable[[Row], float | None]:
    """Reads ``row[name]`` (or ``row[name][inner]``) as a number, if it is one."""

    def read(row: Row) -> float | None:
        value = row.get(name)
        if inner and isinstance(value, dict):
            value = value.get(inner)
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None

    return read


def void_share(row: Row) -> float | None:
    """Voids among the episodes that the step ran."""
    run = row.get("episodes_run")
    return sum(row.get("voids", {}).values()) / run if run else None


def sampler_kl(row: Row) -> float | None:
    """KL(sampler ‖ trainer) per token, estimated on the sampled tokens: the mean of log p_sampler − log p_trainer."""
    mean = number("logprob_difference", "mean")(row)
    return None if mean is None else -mean


#: Title → (line name, reader) of each chart; `percent` charts are listed in `PERCENT`.
CURVES: dict[str, list[tuple[str, Callable[[Row], float | None]]]] = {
    "Reward": [("reward of trained groups", number("reward_mean")), ("pass rate of all groups", number("pass_rate"))],
    "Groups without signal": [("share of groups", number("signal_free_share"))],
    "Voids": [("share of episodes", void_share)],
    "Response length": [
        ("mean tokens", number("response_tokens_mean")),
        ("longest", number("response_tokens_max")),
    ],
    "Sampler against trainer": [
        ("KL", sampler_kl),
        ("mean |Δ log p|", number("logprob_difference", "mean_absolute")),
    ],
}
PERCENT = {"Reward", "Groups without signal", "Voids"}
