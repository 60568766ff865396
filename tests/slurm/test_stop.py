"""An order to stop reaches an array on a real Slurm: nothing is made void by it, and it ends with the planned trials.

Episodes are scripted (`chaos/child_shard.py`), so that no engine is needed: each is a child process, which the order
kills as it kills a world or a server.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from stateward.campaign.sampling import SamplingPlan, plan_probe, write_shards
from stateward.campaign.status import open_shards
from stateward.cluster.arrays import submit_array
from stateward.cluster.one_machine import OneMachineSlurm
from stateward.cluster.profile import ClusterProfile
from stateward.cluster.scheduler import queue
from stateward.config import load_config
from stateward.evaluation.gpu_hours import sacct
from stateward.outcome import EpisodeRecord, Outcome
from stateward.practice import dataset_path
from stateward.store import read_records

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
TASKS, TRIALS = 6, 8


@pytest.fixture
def plan(tmp_path: Path) -> SamplingPlan:
    uids = yaml.safe_load((dataset_path() / "orders_train.yaml").read_text())
    (tmp_path / "train.yaml").write_text(yaml.safe_dump(uids[:TASKS]))
    named = [f"run_dir={tmp_path / 'run'}", f"tasks.train={tmp_path / 'train.yaml'}", f"probe.trials={TRIALS}"]
    more = ["probe.stop=fixed", "probe.max_attempts=3", "episode.concurrency=4"]
    return plan_probe(load_config(ROOT / "configs" / "practice.yaml", [*named, *more]))


@pytest.fixture
def array(plan: SamplingPlan, profile: ClusterProfile, on_cluster: OneMachineSlurm) -> Callable[[], list[str]]:
    """Submit the stage's two shards to the partition that a higher one preempts."""
    profile.setup = [f"export PYTHONPATH={shlex.quote(str(Path(__file__).parent / 'chaos'))}"]
    profile.sample.partition = "low"
    profile.array_concurrency = 0

    def start() -> list[str]:
        files = [path for path, _ in write_shards(plan, 2)]
        return submit_array(
            "child_shard:run_shard",
            files,
            profile=profile,
            role=profile.sample,
            folder=plan.stage.path / "slurm",
            name="stopped",
        )

    return start


@pytest.fixture
def preemption(on_cluster: OneMachineSlurm) -> Iterator[Callable[[bool, int], None]]:
    """Choose whether a job is signalled before it is preempted, and how long it then has."""
    conf = on_cluster.root / "etc" / "slurm.conf"
    before = conf.read_text()

    def choose(signalled: bool, seconds: int) -> None:
        line = "SlurmctldParameters=preempt_send_user_signal\n"
        assert line in before
        text = before if signalled else before.replace(line, "")
        conf.write_text(text.replace("GraceTime=4 ", f"GraceTime={seconds} "))
        on_cluster.run("scontrol", "reconfigure", check=True)

    yield choose
    conf.write_text(before)
    on_cluster.run("scontrol", "reconfigure", check=True)


def rows(plan: SamplingPlan) -> int:
    return sum(len(path.read_bytes().splitlines()) for path in plan.stage.shards.glob("*.jsonl"))


def records(plan: SamplingPlan) -> list[EpisodeRecord]:
    return list(read_records(plan.stage.path))


def logs(plan: SamplingPlan) -> str:
    return "\n".join(path.read_text() for path in sorted((plan.stage.path / "slurm").rglob("*_log.out")))


def gone(jobs: list[str]) -> bool:
    return not [row for row in queue(jobs) if row.state in ("PENDING", "RUNNING", "COMPLETING", "REQUEUED")]


def check_complete(plan: SamplingPlan) -> None:
    """Every planned trial once, at its first attempt, and every shard sealed."""
    found = read_records(plan.stage.path)
    assert found.duplicates == [], logs(plan)
    assert [record.outcome for record in found] == [Outcome.PASS] * (TASKS * TRIALS), logs(plan)
    assert {record.attempt for record in found} == {1}
    assert open_shards(plan.stage.path) == []


def test_a_cancelled_array_leaves_no_void_and_its_shards_unsealed(
    array: Callable[[], list[str]], plan: SamplingPlan, on_cluster: OneMachineSlurm, until: Callable[..., None]
) -> None:
    jobs = array()
    until(lambda: rows(plan) >= 8)
    on_cluster.run("scancel", *jobs, check=True)
    until(lambda: gone(jobs))
    assert {row.state for row in queue(jobs)} <= {"CANCELLED"}, logs(plan)
    assert {record.outcome for record in records(plan)} == {Outcome.PASS}, logs(plan)
    assert open_shards(plan.stage.path) == [0, 1]
    again = array()
    assert again != jobs
    until(lambda: gone(again))
    check_complete(plan)


def test_a_requeued_task_comes_back_and_ends_whole(
    array: Callable[[], list[str]], plan: SamplingPlan, on_cluster: OneMachineSlurm, until: Callable[..., None]
) -> None:
    jobs = array()
    until(lambda: rows(plan) >= 8)
    on_cluster.run("scontrol", "requeue", f"{jobs[0]}_0", check=True)
    until(lambda: gone(jobs))
    check_complete(plan)
    assert logs(plan).count("Starting with JobEnvironment") == 3
    if not on_cluster.accounting:
        return
    # GPU-hours hold all three starts: a task has one GPU.
    workers = [json.loads(path.read_text()) for path in (plan.stage.path / "workers").glob("*.json")]
    ids = sorted({worker["slurm"]["SLURM_JOB_ID"] for worker in workers})

    def starts() -> list[list[str]]:
        query = ("-X", "-n", "-P", "--duplicates", "-j", ",".join(ids), "-o", "State,ElapsedRaw")
        return [line.split("|") for line in on_cluster.run("sacct", *query, check=True).stdout.splitlines()]

    until(lambda: [state for state, _ in starts()].count("COMPLETED") == 2)
    assert len(starts()) == 3
    assert sum(sacct(ids).values()) == sum(int(seconds) for _, seconds in starts())


@pytest.mark.parametrize(("signalled", "grace"), [(True, 4), (False, 30), (False, 0)])
def test_a_preempted_array_comes_back_and_ends_whole(
    array: Callable[[], list[str]],
    plan: SamplingPlan,
    on_cluster: OneMachineSlurm,
    preemption: Callable[[bool, int], None],
    until: Callable[..., None],
    signalled: bool,
    grace: int,
) -> None:
    preemption(signalled, grace)
    jobs = array()
    until(lambda: rows(plan) >= 8)
    options = ("--partition=high", "--nodes=3", "--exclusive", "--time=1", "--output=/dev/null")
    on_cluster.run("sbatch", *options, "--wrap", "sleep 1", check=True)
    until(lambda: logs(plan).count("Starting with JobEnvironment") > 2 and gone(jobs))
    check_complete(plan)
