"""What each stage of a campaign cost: tokens at list prices, and GPU-hours."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from stateward.evaluation.costs import Costs, PriceList, party_models, run_costs
from stateward.evaluation.gpu_hours import GpuHours, gpu_hours
from stateward.evaluation.plan import recorded_workers
from stateward.evaluation.usage import token_totals
from stateward.store import Stage, read_records


@dataclass(frozen=True, kw_only=True)
class StageCost:
    """One stage: `attempts` counts every episode run, voids included."""

    name: str
    attempts: int
    tokens: Costs
    gpu: GpuHours


def campaign_costs(run_dir: Path, prices: PriceList) -> list[StageCost]:
    """Probing, training, merging and every evaluation, in order; stages that were not begun are left out."""
    evaluations = [f"eval/{p.name}" for p in sorted((run_dir / "eval").glob("*")) if p.is_dir()]
    out = []
    seeds = [f"seeds/{p.name}/{stage}" for p in sorted((run_dir / "seeds").glob("*")) for stage in ("train", "merged")]
    for name in ("probe", "train", "merged", *seeds, *evaluations):
        manifest = Stage(run_dir, name).manifest
        if not manifest:
            continue
        folder = run_dir / name
        attempts, successes = 0, 0
        tokens: dict[str, dict[str, int]] = {}
        if (folder / "shards").is_dir() and not name.endswith("merged"):
            records = read_records(folder, columns_only=True)
            tokens = token_totals(records.columns, records.dropped)
            attempts = len(records) + len(records.dropped["uid"])
            successes = int((records.columns["outcome"] == b"pass").sum())
        config = manifest.get("config", {})
        models = party_models(config, _evaluated_model(run_dir / name) if name.startswith("eval/") else "")
        out.append(
            StageCost(
                name=name,
                attempts=attempts,
                tokens=run_costs(tokens, models, prices, successes=successes, reliable=0),
                gpu=gpu_hours({**manifest, "workers": recorded_workers(folder)}, prices),
            )
        )
    return out


def _evaluated_model(stage_dir: Path) -> str:
    """What an evaluation sampled, which need not be the campaign's own policy."""
    for file in sorted((stage_dir / "plan").glob("shard-*.json")):
        spec = json.loads(file.read_text(encoding="utf-8"))
        return str(spec.get("priced_as") or spec["model"])
    return ""
