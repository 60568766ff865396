"""A chain with two trainings on a real Slurm, of which one breaks: the other goes on, and a second call mends the rest.

Training and merge are the stand-ins of the chaos rounds and episodes are decided by their seed; links, arrays, sealing,
markers, curation and report are real.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from stateward.campaign import by_hand, chain, pipeline
from stateward.campaign.links import link_states
from stateward.campaign.status_page import status_page
from stateward.campaign.submission import submit_campaign
from stateward.cluster.one_machine import OneMachineSlurm
from stateward.cluster.profile import ClusterProfile
from stateward.config import load_config
from stateward.practice import dataset_path
from stateward.practice.policy import ensure_policy

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(1200)]

ROOT = Path(__file__).parents[2]
CHAOS = Path(__file__).parent / "chaos"
TRUNK = ["probe", "base", "curate"]
FIRST, SECOND = ([f"{name}-seed{k}" for name in ("train", "merge", "tuned")] for k in (1, 2))


@pytest.fixture
def overrides(tmp_path: Path) -> list[str]:
    shutil.copytree(ensure_policy(), tmp_path / "policy")
    values = {"policy.model": str(tmp_path / "policy"), "run_dir": str(tmp_path / "it's a run; here")}
    for key, tasks in (("train", 8), ("benchmark", 4)):
        uids = yaml.safe_load((dataset_path() / f"orders_{key}.yaml").read_text())
        (tmp_path / f"{key}.yaml").write_text(yaml.safe_dump(uids[:tasks]))
        values[f"tasks.{key}"] = str(tmp_path / f"{key}.yaml")
    return [
        *(f"{key}={json.dumps(value)}" for key, value in values.items()),
        *("probe.trials=6", "probe.stop=fixed", "evaluate.trials=2", "episode.concurrency=4"),
        *("train.steps=2", "train.seed=7"),
    ]


@pytest.fixture
def call(
    on_cluster: OneMachineSlurm,
    profile: ClusterProfile,
    overrides: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[[], None]:
    """``jobs/pipeline.py --cluster practice --seeds 2`` with the stand-ins."""
    for module in (chain, pipeline):
        monkeypatch.setattr(module, "JOBS", CHAOS / "jobs")
    monkeypatch.setattr(by_hand, "HOME", CHAOS)
    monkeypatch.setattr(chain, "RUN_SHARD", "scripted_shard:run_shard")
    python = tmp_path / "python.sh"
    python.write_text((CHAOS / "python.sh").read_text().replace("@PYTHON@", sys.executable))
    python.chmod(0o755)
    monkeypatch.setenv("PYTHON", str(python))
    monkeypatch.setenv("RUN_DIR", "/this/person/has/another/in/the/shell")
    profile.setup, profile.array_concurrency = [f"export PYTHONPATH='{CHAOS}'"], 0
    config_file = ROOT / "configs" / "practice.yaml"

    def submit() -> None:
        config = load_config(config_file, overrides)
        submit_campaign(config, str(config_file), overrides, profile, 1, seeds=2, dry_run=False)

    return submit


def test_two_trainings_of_which_one_breaks(
    call: Callable[[], None],
    on_cluster: OneMachineSlurm,
    tmp_path: Path,
    until: Callable[..., None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    run_dir = tmp_path / "it's a run; here"
    call()
    printed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in printed[1:11]] == [*TRUNK, *FIRST, *SECOND, "report"]
    submitted = json.loads((run_dir / "slurm" / "chain.json").read_text())
    on_cluster.run("scancel", *submitted["train-seed2"], check=True)
    until(lambda: not on_cluster.run("squeue", "--noheader", check=True).stdout, seconds=600)

    states = {link.name: link.state for link in link_states(run_dir)}
    page = "\n".join(status_page(run_dir)[0])
    assert list(states) == [*TRUNK, *FIRST, *SECOND, "report"], page
    # The report's job writes the marks of the evaluations, and then cannot do without the second training.
    assert {name: states[name] for name in (*SECOND, "report")} == dict.fromkeys([*SECOND, "report"], "broken"), page
    assert {states[name] for name in (*TRUNK, *FIRST)} == {"done"}, page
    assert "the chain is broken at train-seed2" in page
    assert "does not start: merge-seed2, tuned-seed2, report" in page

    call()
    printed = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in printed[-11:-1]] == ["done"] * 6 + ["job"] * 4
    until(lambda: not on_cluster.run("squeue", "--noheader", check=True).stdout, seconds=600)
    lines, done = status_page(run_dir)
    assert done, "\n".join(lines)
    again = json.loads((run_dir / "slurm" / "chain.json").read_text())
    assert [name for name in again if again[name] != submitted[name]] == [*SECOND, "report"]
    for k in (1, 2):
        steps = [json.loads(line)["step"] for line in (run_dir / f"seeds/{k}/train/metrics.jsonl").open()]
        assert steps == [1, 2]
    report = (run_dir / "report" / "report.md").read_text()
    # Whether they can be compared is the report's to say: this checkout may have changed between the jobs.
    assert all(f"| {label} |" in report for label in ("base", "tuned-seed1", "tuned-seed2")), report


def test_what_waits_behind_an_array_that_is_submitted_again(
    call: Callable[[], None], on_cluster: OneMachineSlurm, tmp_path: Path, until: Callable[..., None]
) -> None:
    """The probe is lost while all after it is queued: the next call cancels that and queues it behind a new probe."""
    record = tmp_path / "it's a run; here" / "slurm" / "chain.json"

    def queued() -> dict[str, str]:
        """Job → what it waits for."""
        rows = on_cluster.run("squeue", "--noheader", "--format=%A|%E", check=True).stdout.splitlines()
        return dict(row.split("|") for row in rows)

    def partitions(state: str) -> None:
        for name in ("gpu", "cpu"):  # a job is taken by a partition that is down, and waits there
            on_cluster.run("scontrol", "update", f"partitionname={name}", f"state={state}", check=True)

    partitions("down")
    try:
        call()
        first = json.loads(record.read_text())
        on_cluster.run("scancel", *first["probe"], check=True)
        until(lambda: first["probe"][0] not in queued())
        call()
        waits, again = queued(), json.loads(record.read_text())
        assert again["base"] == first["base"]
        behind = [name for name in first if name != "base"]
        assert all(again[name] != first[name] for name in behind)
        stale = {job for name in behind for job in first[name]}
        assert not stale & set(waits), "they would start behind the lost probe"
        assert again["probe"][0] in waits[again["curate"][0]]
        assert again["curate"][0] in waits[again["train-seed1"][0]]
    finally:
        partitions("up")
