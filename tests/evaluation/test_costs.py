from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import pytest

from stateward.errors import UserError
from stateward.evaluation.campaign_costs import campaign_costs
from stateward.evaluation.costs import PriceList, load_prices, run_costs
from stateward.evaluation.gpu_hours import gpu_hours, sacct
from stateward.store import Journal, Stage

NONE = {"requests": 0, "prompt": 0, "cached": 0, "completion": 0, "reasoning": 0}


def prices(tmp_path: Path, text: str) -> PriceList:
    (tmp_path / "p.yaml").write_text(text)
    return load_prices(tmp_path / "p.yaml")


def test_cached_and_reasoning_tokens_are_parts_not_additions(tmp_path: Path) -> None:
    listed = prices(tmp_path, "models: {m: {input: 2, cached: 0.5, output: 8}}")
    tokens = {"policy": {**NONE, "prompt": 1_000_000, "cached": 600_000, "completion": 100_000, "reasoning": 90_000}}
    found = run_costs(tokens, {"policy": "/models/m"}, listed, successes=4, reliable=0)
    assert found.total == pytest.approx(0.4 * 2 + 0.6 * 0.5 + 0.1 * 8)
    assert found.per_success == pytest.approx(found.total / 4)
    assert math.isnan(found.per_reliable)


def test_a_model_without_a_price_makes_the_total_undefined_not_smaller(tmp_path: Path) -> None:
    listed = prices(tmp_path, "models: {m: {input: 2, cached: 0.5, output: 8}}")
    tokens = {"policy": {**NONE, "prompt": 10}, "user": {**NONE, "completion": 5}, "judge": NONE}
    found = run_costs(tokens, {"policy": "m", "user": "other"}, listed, successes=1, reliable=1)
    assert math.isnan(found.total)
    assert found.unpriced == ("user (other)",)
    assert "judge" not in found.by_party, "a party that was not used needs no price"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("models: {m: {input: 2, cached: 1}}", "models.m.output is None"),
        ("models: {m: {input: -2, cached: 1, output: 1}}", "models.m.input is -2"),
        ("models: {m: {inptu: 2}}", "unknown key 'inptu'"),
        ("models: {m: {input: 2, cached: 1, output: 1, date: yesterday}}", "models.m.date is 'yesterday'"),
        ("prices: {}", "unknown key 'prices'"),
        ("models: [", "is not YAML"),
        ("[1]", "is not a mapping"),
    ],
)
def test_mistakes_in_a_price_list_are_named(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UserError, match=said.replace("[", r"\[")):
        prices(tmp_path, text)
    with pytest.raises(UserError, match="no such price list"):
        load_prices(tmp_path / "none.yaml")


def test_the_list_that_is_shipped_can_be_read() -> None:
    listed = load_prices(Path(__file__).parents[2] / "configs" / "prices.yaml")
    assert listed.price("practice") is not None
    assert all(price.source and price.date for price in listed.models.values())
    assert listed.identity == load_prices(Path(__file__).parents[2] / "configs" / "prices.yaml").identity


def test_voids_and_repeats_were_paid_for_too(campaign: Any, make_episode: Any, tmp_path: Path) -> None:
    path = campaign.add("base", [1], 2, voids=[(0, 1)])
    listed = prices(tmp_path, "models: {practice: {input: 1, cached: 1, output: 1}}")
    one = 3300 / 1e6
    assert campaign_costs(campaign.run_dir, listed)[0].tokens.total == pytest.approx(2 * one)
    trial = next(iter(Stage(path.parent, "base").shards.glob("*.h5")))
    assert trial.exists()
    from stateward.evaluation.run import load_run

    policy = load_run(path).plan.policy
    with Journal(path / "shards" / "again.jsonl") as journal:
        journal.append(make_episode(campaign.uids[0], 1, "pass", policy=policy, attempt=2).to_json())
    (stage,) = campaign_costs(campaign.run_dir, listed)
    assert stage.attempts == 3
    assert stage.tokens.total == pytest.approx(3 * one)


def test_training_and_probing_stand_apart(campaign: Any, make_episode: Any) -> None:
    campaign.add("base", [1], 1)
    for name, folder in (("probe", "probe"), ("train", "train")):
        Stage(campaign.run_dir, name).begin({"policy": {"model": "practice"}}, {})
        with Journal(campaign.run_dir / folder / "shards" / "0.jsonl") as journal:
            journal.append(make_episode("a.py:test_a", 0, "pass").to_json())
    listed = load_prices(Path(__file__).parents[2] / "configs" / "prices.yaml")
    assert [(s.name, s.attempts) for s in campaign_costs(campaign.run_dir, listed)] == [
        ("probe", 1),
        ("train", 1),
        ("eval/base", 1),
    ]


def worker(job: str, begin: float, end: float | None, gpus: str = "8") -> dict[str, Any]:
    row: dict[str, Any] = {"time": begin, "slurm": {"SLURM_JOB_ID": job, "SLURM_GPUS_ON_NODE": gpus}}
    return row if end is None else {**row, "ended": end}


def test_gpu_hours_from_marks_when_there_is_no_accounting(tmp_path: Path) -> None:
    listed = prices(tmp_path, "gpu_hour: {any: 2.5, H100: 3}")
    manifest = {"workers": [worker("1", 0, 3600), worker("2", 0, 1800, "4")], "finished": 7200}
    found = gpu_hours(manifest, listed, accounting=lambda jobs: {})
    assert (found.hours, found.source, found.note) == (10.0, "marks", "")
    assert found.dollars == 25
    manifest["workers"].append(worker("3", 3600, None, "1"))
    found = gpu_hours(manifest, listed, accounting=lambda jobs: {"1": 1.0})
    assert found.hours == 11
    assert found.note.startswith("1 workers left no end")
    named = {"workers": [{**worker("1", 0, 3600), "gpu": "H100"}]}
    assert gpu_hours(named, listed, accounting=lambda jobs: {}).dollars == 24
    unknown = gpu_hours({"starts": [worker("7", 0, None)]}, listed, accounting=lambda jobs: {})
    assert unknown.source == "none"
    assert math.isnan(unknown.hours), "nothing known is not nothing spent"
    assert gpu_hours({"workers": [{"time": 0, "ended": 9, "gpus": 0}]}, listed).dollars == 0


def test_gpu_hours_from_accounting_when_it_knows_every_job(tmp_path: Path, monkeypatch: Any) -> None:
    fake = tmp_path / "sacct"
    # What Slurm 22 prints for a heterogeneous job (two components) and a plain one.
    fake.write_text("#!/bin/sh\necho '7|3600|cpu=4'\necho '7+1|3600|cpu=96,gres/gpu=8'\necho '9|1800|gres/gpu=4'\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert sacct(["7", "9"]) == {"7": 28_800.0, "9": 7_200.0}
    listed = prices(tmp_path, "gpu_hour: {}")
    found = gpu_hours({"starts": [worker("7", 0, None)], "workers": [worker("9", 0, 60)]}, listed)
    assert (found.hours, found.source) == (10.0, "accounting")
    assert math.isnan(found.dollars)
    # Two starts of a job that was requeued, which sacct shows only when it is asked for duplicates.
    starts = "7|100|gres/gpu=8\n7+1|60|gres/gpu=2\n7|40|gres/gpu=4\n"
    fake.write_text(f"#!/bin/sh\ncase \"$*\" in *--duplicates*) printf '{starts}' ;; esac\n")
    assert sacct(["7"]) == {"7": 800.0 + 120.0 + 160.0}
    fake.write_text("#!/bin/sh\necho 'Slurm accounting storage is disabled' >&2; exit 1\n")
    assert sacct(["7"]) == {}
