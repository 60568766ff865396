"""The practice campaign as one chain of jobs on a real Slurm, with the real engines, and the same stage run here.

A probe array, the heterogeneous job with Ray over three "nodes" and a real step of Verl on two of them, merge, two
evaluation arrays, report. Small in everything but its parts. An array task is killed on the way, and the campaign is
called again (`campaign` of conftest.py).
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from small_campaign import ROOT, SmallCampaign
from stateward.cluster.one_machine import OneMachineSlurm
from stateward.cluster.services import vllm as service
from stateward.cluster.services.vllm import VllmServer
from stateward.config import BandConfig
from stateward.difficulty.bands import Bands
from stateward.difficulty.posterior import band_index
from stateward.store import Stage, read_records

pytestmark = [pytest.mark.slurm, pytest.mark.engines, pytest.mark.timeout(3600)]

LINKS = ("probe", "base", "curate", "train", "merge", "tuned", "report")


@pytest.fixture
def run_dir(campaign: SmallCampaign) -> Path:
    return campaign.run_dir


def test_the_chain_ended_and_what_was_done_before_the_kill_was_kept(
    campaign: SmallCampaign, slurm: OneMachineSlurm
) -> None:
    assert "train   het" in campaign.printed
    assert set(campaign.jobs) == set(LINKS)
    probe = read_records(campaign.run_dir / "probe")
    after = {record.trial.key: record.to_json() for record in probe}
    assert {key: after[key] for key in campaign.before} == campaign.before
    assert not probe.duplicates
    if slurm.accounting:
        ids = ",".join(job for link in campaign.jobs.values() for job in link)
        # One task of the probe again, two arrays of two tasks, three jobs, two components. Accounting lags behind.
        deadline = time.monotonic() + 300
        while sorted((states := accounted(slurm, ids)).values()) != ["COMPLETED"] * 10:
            assert time.monotonic() < deadline, states
            assert len(states) < 10 or {"RUNNING", "PENDING"} & set(states.values()), (campaign.jobs, states)
            time.sleep(0.5)


def accounted(slurm: OneMachineSlurm, ids: str) -> dict[str, str]:
    lines = slurm.run("sacct", "-X", "-n", "-P", "-j", ids, "-o", "jobid,state").stdout.split()
    return dict(line.split("|", 1) for line in lines)


@pytest.mark.parametrize(
    ("name", "number", "log"), [("probe", 304, "curate"), ("eval/base", 16, "report"), ("eval/tuned", 16, "report")]
)
def test_every_planned_trial_is_there_once_and_was_counted(
    campaign: SmallCampaign, name: str, number: int, log: str
) -> None:
    stage = Stage(campaign.run_dir, name)
    records = read_records(stage.path)
    counts, outcomes = stage.manifest["counts"], Counter(record.outcome.value for record in records)
    assert counts["stored"] + counts.get("saved", 0) == number
    assert (len(records), counts["voids"], records.duplicates) == (counts["stored"], 0, [])
    assert (counts["passes"], counts["fails"]) == (outcomes["pass"], outcomes["fail"])
    assert all(record.messages and record.final_state and record.initial_state_hash for record in records)
    said = f"{name}: {len(records)} of {len(records)} trials stored: {outcomes['pass']} passed"
    assert said in campaign.logs(log)
    workers = [json.loads(path.read_text())["slurm"] for path in (stage.path / "workers").glob("*.json")]
    assert {worker["SLURM_ARRAY_TASK_ID"] for worker in workers} == {"0", "1"}


def test_the_training_tasks_lie_in_all_bands_of_difficulty(run_dir: Path) -> None:
    """The shipped policy is neither hopeless nor perfect."""
    passes: dict[str, list[bool]] = {}
    for record in read_records(run_dir / "probe"):
        passes.setdefault(record.trial.uid, []).append(record.outcome.value == "pass")
    bands = Bands.from_config(BandConfig())
    found = Counter(bands.names[int(band_index(sum(p), len(p), bands))] for p in passes.values())
    assert set(found) == set(bands.names), dict(found)


def test_ray_spanned_both_components_and_verl_trained_on_two_nodes(campaign: SmallCampaign, run_dir: Path) -> None:
    text = campaign.logs("train")
    for phase in ("3 nodes see the shared folder", "2 distinct devices, all-reduce 3", "driver ended with status 0"):
        assert phase in text
    steps = [json.loads(line) for line in (run_dir / "train" / "metrics.jsonl").read_text().splitlines()]
    assert [step["step"] for step in steps] == [1]
    mark = json.loads((run_dir / "train" / "checkpoints" / "global_step_1" / "VERIFIED").read_text())
    assert mark["world_size"] == 2
    assert Stage(run_dir, "merged").is_done()


def test_training_reached_its_step_on_real_episodes(run_dir: Path) -> None:
    episodes = list(read_records(run_dir / "train"))
    valid = [e for e in episodes if e.outcome.value != "void"]
    assert len(valid) >= 16
    for episode in valid:
        ids, mask, logprobs = (episode.tokens[name] for name in ("ids", "mask", "logprobs"))
        assert len(ids) == len(mask) == len(logprobs)
        assert 1 in mask
    pool = yaml.safe_load((run_dir / "pool" / "train.yaml").read_text())
    assert {e.trial.uid for e in episodes} <= set(pool)


def test_base_and_tuned_were_run_under_the_same_settings_by_different_policies(run_dir: Path) -> None:
    base, tuned = (Stage(run_dir, f"eval/{label}").manifest["inputs"] for label in ("base", "tuned"))
    assert {**base, "policy": ""} == {**tuned, "policy": ""}
    assert base["policy"] != tuned["policy"]


def test_a_second_call_submits_nothing(campaign: SmallCampaign) -> None:
    before = campaign.record()
    assert campaign.call().count(" done\n") >= len(LINKS)
    assert campaign.record() == before
    assert campaign.queued() == []


def evaluate(*argv: str) -> int:
    """jobs/evaluate.py in this process."""
    spec = importlib.util.spec_from_file_location("job_evaluate", ROOT / "jobs" / "evaluate.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return int(module.main(argv))


def test_the_same_stage_here_gives_the_same_trials(
    campaign: SmallCampaign, run_dir: Path, practice_server: VllmServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The evaluation of the base, here in one shard instead of two array tasks, with a server that runs already.

    Keys, seeds and initial worlds must be equal, and so must the sampled tokens, as every request has its own seed. A
    sum in another order can flip a token: vLLM's batches differ with what else is in flight. Conversations whose tokens
    are equal must have ended the same way.
    """

    @contextlib.contextmanager
    def running(*_: Any, **__: Any) -> Iterator[VllmServer]:
        yield practice_server

    monkeypatch.setattr(service, "serve", running)
    for name in [name for name in os.environ if name.startswith("SLURM")]:
        monkeypatch.delenv(name)
    here = run_dir.parent / "here"
    shutil.rmtree(here, ignore_errors=True)
    assert evaluate(*campaign.arguments("--label", "base", run_dir=here)) == 0
    there = {r.trial.key: r for r in read_records(run_dir / "eval" / "base")}
    local = {r.trial.key: r for r in read_records(here / "eval" / "base")}
    assert set(there) == set(local)
    for key, record in local.items():
        assert (record.seed, record.initial_state_hash) == (there[key].seed, there[key].initial_state_hash)
    same = [key for key in local if _said(local[key]) == _said(there[key])]
    print(f"{len(same)} of {len(local)} conversations are equal to the last token")
    assert len(same) >= len(local) // 2
    for key in same:
        assert (local[key].outcome, local[key].final_state) == (there[key].outcome, there[key].final_state)


def _said(record: object) -> list[str]:
    """What the policy wrote; the identifiers of calls are drawn anew each time."""
    turns = [message for message in record.messages if message["role"] == "assistant"]  # type: ignore[attr-defined]
    return [
        json.dumps([turn["content"], [call["function"] for call in turn.get("tool_calls") or ()]], sort_keys=True)
        for turn in turns
    ]
