"""The practice campaign as one chain of jobs on a real Slurm, with the real engines, and the same stage run here.

A probe array, the heterogeneous job with Ray over four "nodes" and a real step of Verl on three of them, merge, two
evaluation arrays, report. Small in everything but its parts.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from stateward.campaign.status_page import status_page
from stateward.cluster.one_machine import OneMachineSlurm
from stateward.practice import dataset_path
from stateward.practice.policy import ensure_policy
from stateward.store import Stage, read_records

pytestmark = [pytest.mark.slurm, pytest.mark.engines, pytest.mark.timeout(3600)]

ROOT = Path(__file__).parents[2]
LINKS = ("probe", "base", "curate", "train", "merge", "tuned", "report")


def overrides(folder: Path) -> list[str]:
    return [
        f"policy.model={json.dumps(str(folder / 'policy'))}",
        f"tasks.train={json.dumps(str(folder / 'orders_train.yaml'))}",
        f"tasks.benchmark={json.dumps(str(folder / 'orders_benchmark.yaml'))}",
        *("probe.trials=4", "evaluate.trials=2", "train.nodes=3", "train.steps=1", "train.groups_per_step=3"),
    ]


def job(name: str, run_dir: Path, *arguments: str, env: dict[str, str] | None = None) -> str:
    command = [sys.executable, str(ROOT / "jobs" / f"{name}.py"), "--config", str(ROOT / "configs" / "practice.yaml")]
    command += ["--run-dir", str(run_dir), *arguments, *overrides(run_dir.parent)]
    done = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("chain")
    # A copy: the jobs of one chain must all see the same policy.
    shutil.copytree(ensure_policy(), folder / "policy")
    for name in ("orders_train", "orders_benchmark"):
        uids = yaml.safe_load((dataset_path() / f"{name}.yaml").read_text())
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(uids[::3][:8]))
    return folder / "it's a run; here"


def pipeline(run_dir: Path, slurm: OneMachineSlurm) -> str:
    return job("pipeline", run_dir, "--cluster", "practice", "--shards", "2", env=slurm.env)


def queued(slurm: OneMachineSlurm) -> list[str]:
    while True:
        asked = slurm.run("squeue", "--noheader", "--array", "--format", "%i %j %T %r")
        if asked.returncode != -signal.SIGPIPE:  # a busy controller closed the connection under it
            asked.check_returncode()
            return asked.stdout.splitlines()


def test_the_chain_ends_whole(run_dir: Path, slurm: OneMachineSlurm) -> None:
    printed = pipeline(run_dir, slurm)
    assert "train   het" in printed
    deadline = time.monotonic() + 3000
    while queued(slurm):
        assert time.monotonic() < deadline, "\n".join(status(run_dir, slurm))
        time.sleep(0.5)
    lines = status(run_dir, slurm)
    assert (run_dir / "report" / "DONE").is_file(), "\n".join(lines)
    jobs = json.loads((run_dir / "slurm" / "chain.json").read_text())
    assert set(jobs) == set(LINKS)
    if slurm.accounting:
        ids = ",".join(i for link in jobs.values() for i in link)
        # Three arrays of two tasks, three jobs, two components. Accounting lags behind the queue.
        while (states := accounted(slurm, ids)) != ["COMPLETED"] * 11:
            assert time.monotonic() < deadline, states
            assert len(states) < 11 or {"RUNNING", "PENDING"} & set(states), states
            time.sleep(0.5)


def accounted(slurm: OneMachineSlurm, ids: str) -> list[str]:
    return slurm.run("sacct", "-X", "-n", "-P", "-j", ids, "-o", "state").stdout.split()


def status(run_dir: Path, slurm: OneMachineSlurm) -> list[str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLURM_CONF", slurm.env["SLURM_CONF"])
        patch.setenv("PATH", slurm.env["PATH"])
        return status_page(run_dir)[0]


@pytest.mark.parametrize(("name", "number"), [("probe", 32), ("eval/base", 16), ("eval/tuned", 16)])
def test_every_planned_trial_is_there_once(run_dir: Path, name: str, number: int) -> None:
    stage = Stage(run_dir, name)
    records = read_records(stage.path)
    counts = stage.manifest["counts"]
    assert counts["stored"] + counts.get("saved", 0) == number
    assert (len(records), counts["voids"], records.duplicates) == (counts["stored"], 0, [])
    workers = [json.loads(path.read_text())["slurm"] for path in (stage.path / "workers").glob("*.json")]
    assert sorted(worker["SLURM_ARRAY_TASK_ID"] for worker in workers) == ["0", "1"]


def test_ray_spanned_both_components_and_verl_trained_on_three_nodes(run_dir: Path) -> None:
    text = max((run_dir / "slurm").glob("train-*.log"), key=lambda log: log.stat().st_mtime).read_text()
    for phase in ("4 nodes see the shared folder", "3 distinct devices, all-reduce 6", "driver ended with status 0"):
        assert phase in text
    steps = [json.loads(line) for line in (run_dir / "train" / "metrics.jsonl").read_text().splitlines()]
    assert [step["step"] for step in steps] == [1]
    mark = json.loads((run_dir / "train" / "checkpoints" / "global_step_1" / "VERIFIED").read_text())
    assert mark["world_size"] == 3
    assert Stage(run_dir, "merged").is_done()


def test_a_second_call_submits_nothing(run_dir: Path, slurm: OneMachineSlurm) -> None:
    before = (run_dir / "slurm" / "chain.json").read_text()
    printed = pipeline(run_dir, slurm)
    assert printed.count(" done\n") >= len(LINKS)
    assert (run_dir / "slurm" / "chain.json").read_text() == before
    assert queued(slurm) == []


def test_the_same_stage_here_gives_the_same_trials(run_dir: Path) -> None:
    """The evaluation of the base, here in one shard instead of two array tasks.

    Keys, seeds and initial worlds must be equal, and so must the sampled tokens, as every request has its own seed. A
    sum in another order can flip a token: vLLM's batches differ with what else is in flight. Conversations whose tokens
    are equal must have ended the same way.
    """
    here = run_dir.parent / "here"
    shutil.rmtree(here, ignore_errors=True)
    job("evaluate", here, "--label", "base", env={k: v for k, v in os.environ.items() if not k.startswith("SLURM")})
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
