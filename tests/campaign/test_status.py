"""The status of a campaign from disk alone, and with what a scheduler says beside it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stateward.campaign.links import LinkState, breaks, link_states, stage_of
from stateward.campaign.status import open_shards, stage_states
from stateward.campaign.status_page import status_page
from stateward.outcome import EpisodeRecord, Outcome, Trial
from stateward.store import Journal, seal
from stateward.store.stage import write_json

ROOT = Path(__file__).parents[2]
NOW = 1_800_000_000.0


def record(index: int, outcome: Outcome, ended: float) -> EpisodeRecord:
    return EpisodeRecord(
        trial=Trial(uid="f.py:test_a", index=index, policy="p", settings="s"),
        outcome=outcome,
        reward=float("nan") if outcome is Outcome.VOID else float(outcome is Outcome.PASS),
        fault_kind="sampler" if outcome is Outcome.VOID else "",
        fault_cause="endpoint down" if outcome is Outcome.VOID else "",
        seconds={"total": 10.0},
        started=ended - 10.0,
    )


def plan(stage: Path, shards: int, trials: int) -> None:
    for number in range(shards):
        write_json(stage / "plan" / f"shard-{number:04d}.json", {"uids": ["f.py:test_a"], "trials": trials})


def journal(stage: Path, shard: int, records: list[EpisodeRecord], *, sealed: bool = False) -> None:
    path = stage / "shards" / f"{shard:04d}-00.jsonl"
    with Journal(path) as file:
        for row in records:
            file.append(row.to_json())
    if sealed:
        seal(path, path.with_suffix(".h5"))


@pytest.fixture
def no_slurm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))


def stage_line(run_dir: Path, name: str) -> tuple[str, str]:
    state = next(state for state in stage_states(run_dir, now=NOW) if state.name == name)
    return state.state, state.detail


def test_counts_rate_and_expected_end_of_a_stage_that_runs(tmp_path: Path) -> None:
    stage = tmp_path / "probe"
    plan(stage, shards=2, trials=11)
    # A pass every 30 s for five minutes, and a void: 10 gaps in 300 s, 120 an hour; 11 left take 330 s.
    rows = [record(i, Outcome.PASS, NOW - 300 + 30 * i) for i in range(10)]
    journal(stage, 0, [*rows, record(10, Outcome.VOID, NOW)])
    state, detail = stage_line(tmp_path, "probe")
    assert state == "in part"
    ends = time.strftime("%H:%M", time.localtime(NOW + 330))
    assert detail == (
        f"11 of at most 22 trials: 10 pass, 0 fail, 1 void; last one 0 s ago; 120 an hour, the rest by {ends}"
    )


def test_a_stage_that_stands_still_has_no_expected_end(tmp_path: Path) -> None:
    plan(tmp_path / "probe", shards=1, trials=5)
    journal(tmp_path / "probe", 0, [record(i, Outcome.FAIL, NOW - 1_000 + i) for i in range(3)])
    detail = stage_line(tmp_path, "probe")[1]
    assert detail.endswith("last one 17 min ago")


def test_training_has_its_target_its_pace_and_its_end(tmp_path: Path) -> None:
    train = tmp_path / "train"
    write_json(train / "manifest.json", {"config": {"train": {"steps": 8}}})
    rows = [{"step": i + 1, "time": NOW - 400 + 100 * i} for i in range(5)]
    (train / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    ends = time.strftime("%H:%M", time.localtime(NOW + 300))
    assert stage_line(tmp_path, "train") == (
        "in part",
        f"step 5 of 8; last one 0 s ago; 100 s a step, the last by {ends}",
    )


def test_shards_that_no_process_has_sealed(tmp_path: Path) -> None:
    plan(tmp_path, shards=3, trials=1)
    journal(tmp_path, 0, [record(0, Outcome.PASS, NOW)], sealed=True)
    journal(tmp_path, 1, [record(1, Outcome.PASS, NOW)])
    assert open_shards(tmp_path) == [1, 2]


def chain(run_dir: Path) -> None:
    write_json(
        run_dir / "slurm" / "chain.json",
        {"probe": ["10"], "base": ["11"], "curate": ["12"], "train": ["13"], "merge": ["15"]},
    )


def test_without_slurm_the_stages_still_stand_there(tmp_path: Path, no_slurm: None) -> None:
    chain(tmp_path)
    plan(tmp_path / "probe", shards=1, trials=1)
    lines, done = status_page(tmp_path)
    assert not done
    assert any(line.startswith("probe") and "0 of at most 1 trials" in line for line in lines)
    assert {link.state for link in link_states(tmp_path)} == {"unknown"}


def stub(folder: Path, name: str, text: str) -> None:
    """A client that notes each call and says `text`."""
    folder.mkdir(exist_ok=True)
    program = folder / name
    program.write_text(f"#!/bin/sh\necho {name} >> '{folder}/calls'\ncat <<'END'\n{text}\nEND\n")
    program.chmod(0o755)


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "bin"
    stub(folder, "squeue", "11_0|RUNNING|None|base\n11_1|PENDING|Resources|base\n13+0|PENDING|Dependency|train")
    stub(folder, "sacct", "10_0|COMPLETED\n10_1|FAILED\n11_0|RUNNING\n12|FAILED\n13+0|PENDING\n15|CANCELLED by 0")
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return folder


def test_the_broken_link_its_reason_and_its_log(tmp_path: Path, slurm: Path) -> None:
    run_dir = tmp_path / "run"
    chain(run_dir)
    plan(run_dir / "probe", shards=2, trials=1)
    journal(run_dir / "probe", 0, [record(0, Outcome.PASS, NOW)], sealed=True)
    log = run_dir / "slurm" / "probe" / "chunk-00" / "10_1_0_log.out"
    log.parent.mkdir(parents=True)
    log.write_text("Traceback (most recent call last):\nOSError: [Errno 28] No space left on device\nsubmitit ended\n")
    good = log.with_name("10_0_0_log.out")
    good.write_text("an error that was mended\nExiting after successful completion\n")
    states = {link.name: link for link in link_states(run_dir)}
    assert {name: link.state for name, link in states.items()} == {
        "probe": "broken",
        "base": "running",
        "curate": "broken",
        "train": "pending",
        "merge": "broken",
    }
    assert states["probe"].detail == "1 shards are not sealed: 1; Slurm says 1 COMPLETED, 1 FAILED"
    assert states["probe"].errors == (f"OSError: [Errno 28] No space left on device\n    log: {log}",)
    assert states["base"].detail == "1 running, 1 pending (Resources)"
    assert states["train"].detail == "pending (Dependency)"
    text = "\n".join(status_page(run_dir)[0])
    assert "the chain is broken at probe; what waits behind it does not start: curate, merge" in text


def test_the_number_of_controller_calls_is_constant(tmp_path: Path, slurm: Path) -> None:
    run_dir = tmp_path / "run"
    write_json(run_dir / "slurm" / "chain.json", {"probe": [str(i) for i in range(100, 400)], "train": ["13"]})
    status_page(run_dir)
    assert sorted((slurm / "calls").read_text().split()) == ["sacct", "squeue"]


def test_accounting_that_is_off_is_no_error(tmp_path: Path, slurm: Path) -> None:
    (slurm / "sacct").write_text("#!/bin/sh\necho 'Slurm accounting storage is disabled' >&2; exit 1\n")
    chain(tmp_path / "run")
    details = {link.name: link.detail for link in link_states(tmp_path / "run")}
    assert details["merge"] == "it ended without its marker"


def test_a_stage_with_its_marker_is_done_whatever_slurm_says(tmp_path: Path, slurm: Path) -> None:
    run_dir = tmp_path / "run"
    chain(run_dir)
    (run_dir / "merged").mkdir()
    (run_dir / "merged" / "DONE").touch()
    assert {link.name: link.state for link in link_states(run_dir)}["merge"] == "done"


def test_an_array_whose_shards_are_sealed_has_ended_and_is_not_broken(tmp_path: Path, slurm: Path) -> None:
    """Its marker is for the next job to write."""
    chain(tmp_path)
    plan(tmp_path / "probe", shards=2, trials=1)
    for shard in range(2):
        journal(tmp_path / "probe", shard, [record(shard, Outcome.PASS, NOW)], sealed=True)
    (state,) = (link for link in link_states(tmp_path) if link.name == "probe")
    assert (state.state, state.detail) == ("ended", "every shard is sealed")


def test_a_campaign_that_was_never_submitted_has_no_links(tmp_path: Path) -> None:
    assert link_states(tmp_path) == []


SEEDS = [f"{name}-seed{k}" for k in (1, 2, 10) for name in ("train", "merge", "tuned")]


def test_several_trainings_stand_one_after_the_other(tmp_path: Path, slurm: Path) -> None:
    # The tenth was submitted in a later call, behind the report.
    record = {name: ["13"] for name in ("probe", "base", "curate", *SEEDS[:6], "report", *SEEDS[6:])}
    write_json(tmp_path / "slurm" / "chain.json", record)
    write_json(tmp_path / "eval" / "control" / "slurm" / "jobs.json", {"jobs": ["14"]})
    assert [link.name for link in link_states(tmp_path)] == ["probe", "base", "curate", "control", *SEEDS, "report"]
    assert [stage_of(name) for name in ("train-seed2", "merge-seed2", "tuned-seed2", "control", "tuned")] == [
        *("seeds/2/train", "seeds/2/merged", "eval/tuned-seed2", "eval/control", "eval/tuned")
    ]
    names = [state.name for state in stage_states(tmp_path)]
    of_seeds = [f"seeds/{k}/{name}" for k in (1, 2, 10) for name in ("train", "merged")]
    assert names == ["probe", "pool", *of_seeds, "eval/control", "report"]


@pytest.mark.parametrize(
    ("broken", "found"),
    [
        (["train-seed2", "merge-seed2", "report"], [("train-seed2", ["merge-seed2", "report"])]),
        (["tuned-seed1", "train-seed2", "report"], [("tuned-seed1", ["report"]), ("train-seed2", [])]),
        (["curate", "train-seed1", "train-seed2", "report"], [("curate", ["train-seed1", "train-seed2", "report"])]),
        (["base", "merge", "tuned", "report"], [("base", ["report"]), ("merge", ["tuned"])]),
        ([], []),
    ],
)
def test_a_training_that_breaks_takes_only_its_own_links_with_it(
    broken: list[str], found: list[tuple[str, list[str]]]
) -> None:
    names = ["probe", "base", "curate", "train", "merge", "tuned", *SEEDS, "report"]
    states = [LinkState(name=name, jobs=["1"], state="broken" if name in broken else "done") for name in names]
    assert breaks(states) == found


def test_a_damaged_shard_is_a_line_of_the_page(tmp_path: Path, no_slurm: None) -> None:
    plan(tmp_path / "probe", shards=1, trials=1)
    plan(tmp_path / "eval" / "base", shards=1, trials=1)
    journal(tmp_path / "probe", 0, [record(0, Outcome.PASS, NOW)], sealed=True)
    (shard,) = (tmp_path / "probe" / "shards").glob("*.h5")
    shard.write_bytes(shard.read_bytes()[:200])
    lines, done = status_page(tmp_path)
    assert not done
    (probe,) = [line for line in lines if line.startswith("probe")]
    assert "unreadable" in probe
    assert str(shard) in probe
    assert any(line.startswith("eval/base") and "in part" in line for line in lines)


def test_a_folder_that_may_not_be_read_is_a_line_of_the_page(
    tmp_path: Path, no_slurm: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of somebody else with umask 077. Root may read everything, so the refusal itself is stood in for."""
    (tmp_path / "pool").mkdir()
    is_file = Path.is_file

    def refused(path: Path) -> bool:
        if path.parent.name == "pool":
            raise PermissionError(13, "Permission denied", str(path))
        return is_file(path)

    monkeypatch.setattr(Path, "is_file", refused)
    (line,) = [line for line in status_page(tmp_path)[0] if line.startswith("pool")]
    assert "unreadable" in line
    assert "Permission denied" in line


def test_a_reader_that_goes_away_ends_the_program_without_a_word(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "jobs" / "status.py"), str(tmp_path)]
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, "")
