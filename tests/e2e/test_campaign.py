"""The whole campaign at its smallest size, with the real engines, killed on the way and called again.

vLLM serves, Verl trains one step with Ray, FSDP and gloo, Verl's merger merges: what `make run` does, with fewer tasks.
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
from typing import Any

import numpy as np
import pytest
import yaml

from stateward.cluster.services.vllm import serve
from stateward.config.load import config_from_dict
from stateward.episode import TokenPolicy, open_environment
from stateward.outcome import EpisodeRecord
from stateward.policy import open_policy
from stateward.policy.samplers.vllm import VllmSampler
from stateward.policy.turn import Sample
from stateward.practice import dataset_path
from stateward.store import Stage, read_records
from stateward.training.dataset import read_tasks
from stateward.training.paths import TrainPaths

pytestmark = [pytest.mark.engines, pytest.mark.timeout(3000)]

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


def test_base_and_tuned_were_run_under_the_same_settings_by_different_policies(run_dir: Path) -> None:
    base, tuned = (Stage(run_dir, f"eval/{label}").manifest["inputs"] for label in ("base", "tuned"))
    assert {**base, "policy": ""} == {**tuned, "policy": ""}
    assert base["policy"] != tuned["policy"]


def test_training_reached_its_step_on_real_episodes(run_dir: Path) -> None:
    steps = [json.loads(line) for line in (run_dir / "train" / "metrics.jsonl").read_text().splitlines()]
    assert [step["step"] for step in steps] == [1]
    episodes = list(read_records(run_dir / "train"))
    valid = [e for e in episodes if e.outcome.value != "void"]
    assert len(valid) >= 16
    for episode in valid:
        ids, mask, logprobs = (episode.tokens[name] for name in ("ids", "mask", "logprobs"))
        assert len(ids) == len(mask) == len(logprobs)
        assert 1 in mask
    pool = yaml.safe_load((run_dir / "pool" / "train.yaml").read_text())
    assert {e.trial.uid for e in episodes} <= set(pool)


class Again:
    """Has a server sample what was sampled before, turn by turn."""

    def __init__(self, sampler: VllmSampler, turns: list[list[int]]) -> None:
        self.sampler, self.turns = sampler, iter(turns)

    async def sample(self, prompt_ids: list[int], *, max_tokens: int, seed: int) -> Sample:
        return await self.sampler.sample_ids(prompt_ids, next(self.turns))


def sampled_turns(record: EpisodeRecord) -> list[list[int]]:
    """The tokens of each turn that the policy sampled."""
    ids, mask = record.tokens["ids"], record.tokens["mask"]
    turns: list[list[int]] = []
    for position, sampled in enumerate(mask):
        if sampled and not mask[position - 1]:
            turns.append([])
        if sampled:
            turns[-1].append(ids[position])
    return turns


def without_ids(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages without the ids of their tool calls, which are drawn anew for every episode."""
    kept = [{key: value for key, value in message.items() if key != "tool_call_id"} for message in messages]
    for message in kept:
        if "tool_calls" in message:
            message["tool_calls"] = [call["function"] for call in message["tool_calls"]]
    return kept


async def test_what_the_trainer_sampled_gives_the_same_ledger_through_a_server(run_dir: Path, tmp_path: Path) -> None:
    # Verl's engine sampled these in training; here the server that probes and evaluates samples the same tokens.
    plan = json.loads(TrainPaths(run_dir).settings.read_text())
    config, tasks = config_from_dict(plan["config"]), read_tasks(TrainPaths(run_dir).tasks)
    opened = open_policy(Path(plan["model"]), config.policy)
    episodes = [r for r in read_records(run_dir / "train") if r.outcome.value != "void" and r.turns > 2][:6]
    assert len(episodes) == 6
    length = config.policy.max_model_len
    with serve(Path(plan["model"]), config.serve, max_model_len=length, log=tmp_path / "vllm.log") as server:
        async with (
            open_environment(config.episode) as environment,
            VllmSampler(server.base_url, server.api_key, config.sampling, tokenizer=opened.tokenizer) as sampler,
        ):
            for episode in episodes:
                policy = TokenPolicy(
                    renderer=opened.renderer,
                    interpreter=opened.interpreter,
                    sampler=Again(sampler, sampled_turns(episode)),
                    fingerprint="again",
                    max_model_len=length,
                    max_tokens_per_turn=config.sampling.max_tokens_per_turn,
                )
                runner = environment.runner(policy, keep_tokens=True)
                again = await runner.run(tasks[episode.trial.uid], episode.trial, episode.seed, attempt=episode.attempt)
                assert (again.outcome, again.fault_cause) == (episode.outcome, "")
                for name in ("ids", "mask", "prompt_length"):
                    assert again.tokens[name] == episode.tokens[name], name
                assert without_ids(again.messages) == without_ids(episode.messages)
                assert again.final_state == episode.final_state
                # Two engines batch differently and compute in bfloat16: equal but for rounding.
                difference = np.abs(np.subtract(again.tokens["logprobs"], episode.tokens["logprobs"]))
                assert difference.mean() < 0.02


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
