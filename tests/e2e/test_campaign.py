"""The whole campaign on this machine at its smallest size, with the real engines, killed on the way and called again.

What `make run` does, with fewer tasks. `make test` does the same on a Slurm (tests/slurm/test_campaign.py).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
import yaml

from stateward.practice import dataset_path
from stateward.store import Stage, read_records

pytestmark = [pytest.mark.engines, pytest.mark.nightly, pytest.mark.timeout(3000)]

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    # A path with a space and a quote: nothing of ours goes through a shell unquoted.
    folder = tmp_path_factory.mktemp("campaign") / "it's a run"
    folder.mkdir()
    for name in ("orders_train", "orders_benchmark"):
        uids = yaml.safe_load((dataset_path() / f"{name}.yaml").read_text())
        # Every third task: all kinds of errands are among them.
        (folder.parent / f"{name}.yaml").write_text(yaml.safe_dump(uids[::3][:12]))
    return folder


def pipeline(run_dir: Path, log: Path) -> subprocess.Popen[bytes]:
    with log.open("ab") as out:
        return subprocess.Popen(
            [
                *(sys.executable, str(ROOT / "jobs" / "pipeline.py")),
                *("--config", str(ROOT / "configs" / "practice.yaml"), "--run-dir", str(run_dir)),
                f"tasks.train={json.dumps(str(run_dir.parent / 'orders_train.yaml'))}",
                f"tasks.benchmark={json.dumps(str(run_dir.parent / 'orders_benchmark.yaml'))}",
                *("probe.trials=4", "evaluate.trials=2", "train.steps=1", "train.groups_per_step=2"),
            ],
            stdout=out,
            stderr=out,
            start_new_session=True,
            cwd=ROOT,
        )


def journal_rows(stage: Path) -> int:
    return sum(file.read_bytes().count(b"\n") for file in (stage / "shards").glob("*.jsonl"))


def test_a_killed_campaign_goes_on_and_ends_whole(run_dir: Path) -> None:
    log = run_dir.parent / "log.txt"
    first = pipeline(run_dir, log)
    deadline = time.monotonic() + 900
    while journal_rows(run_dir / "probe") < 5:
        assert first.poll() is None, log.read_text()[-3000:]
        assert time.monotonic() < deadline, log.read_text()[-3000:]
        time.sleep(0.2)
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    before = {r.trial.key: r.to_json() for r in read_records(run_dir / "probe")}
    assert before

    assert pipeline(run_dir, log).wait() == 0, log.read_text()[-6000:]

    # What was finished before the kill was kept as it was, and nothing ran twice.
    probe = read_records(run_dir / "probe")
    after = {r.trial.key: r.to_json() for r in probe}
    assert {key: after[key] for key in before} == before
    assert not probe.duplicates


@pytest.mark.parametrize("name", ["probe", "eval/base", "eval/tuned"])
def test_the_counts_that_were_printed_are_what_the_store_holds(run_dir: Path, name: str) -> None:
    stage = Stage(run_dir, name)
    counts = stage.manifest["counts"]
    records = list(read_records(stage.path))
    outcomes = Counter(record.outcome.value for record in records)
    assert counts["stored"] == counts["planned"] == len(records)
    assert (counts["passes"], counts["fails"], counts["voids"]) == (outcomes["pass"], outcomes["fail"], 0)
    assert all(record.messages and record.final_state and record.initial_state_hash for record in records)
    printed = (run_dir.parent / "log.txt").read_text()
    assert f"{name}: {len(records)} of {len(records)} trials stored: {outcomes['pass']} passed" in printed
    if name != "probe":
        assert len(records) == 12 * 2


def test_the_report_is_there_and_calling_again_does_nothing(run_dir: Path) -> None:
    assert (run_dir / "report" / "report.html").stat().st_size > 10_000
    log = run_dir.parent / "again.txt"
    before = {p: p.stat().st_mtime_ns for p in run_dir.rglob("*.h5")}
    assert pipeline(run_dir, log).wait() == 0
    assert {p: p.stat().st_mtime_ns for p in run_dir.rglob("*.h5")} == before
    assert log.read_text().count("already done with these inputs") >= 3


def test_no_process_is_left(run_dir: Path) -> None:
    mine = str(run_dir.parent)
    left = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except (FileNotFoundError, ProcessLookupError):
                continue
            if mine in command:
                left.append(command)
    assert left == []
