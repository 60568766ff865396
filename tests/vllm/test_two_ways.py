"""The same evaluation in other ways, on one real server: as an API model, and by two replicas instead of one."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from stateward.campaign.layout import model_path
from stateward.campaign.sampling import run_shard
from stateward.cluster.services import vllm as service
from stateward.cluster.services.vllm import MODEL_NAME, VllmServer
from stateward.config import load_config
from stateward.evaluation.comparability import differences
from stateward.evaluation.run import load_run
from stateward.outcome import EpisodeRecord
from stateward.practice import dataset_path
from stateward.store import read_records

pytestmark = [pytest.mark.engines, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
CONFIG = ROOT / "configs" / "practice.yaml"
TRIALS = 2


@pytest.fixture(scope="module")
def job() -> ModuleType:
    spec = importlib.util.spec_from_file_location("job_evaluate", ROOT / "jobs" / "evaluate.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def evaluate(tmp_path: Path, job: ModuleType, practice_server: VllmServer, monkeypatch: pytest.MonkeyPatch) -> Any:
    """jobs/evaluate.py with a label and options; the server that a checkpoint's evaluation would start is this one."""

    @contextlib.contextmanager
    def running(*_: Any, **__: Any) -> Iterator[VllmServer]:
        yield practice_server

    monkeypatch.setattr(service, "serve", running)
    monkeypatch.setenv("KEY_OF_THE_TEST", practice_server.api_key)
    uids = yaml.safe_load((dataset_path() / "orders_benchmark.yaml").read_text())[::4]
    (tmp_path / "tasks.yaml").write_text(yaml.safe_dump(uids))
    api = {"base_url": practice_server.base_url, "model": MODEL_NAME, "api_key_env": "KEY_OF_THE_TEST"}
    config = yaml.safe_load(CONFIG.read_text())
    config["tasks"]["benchmark"] = str(tmp_path / "tasks.yaml")
    config["evaluate"] |= {"trials": TRIALS, "endpoints": {"api": api}}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))

    def run(label: str, *more: str) -> Path:
        where = ["--config", str(tmp_path / "config.yaml"), "--run-dir", str(tmp_path / "run"), "--label", label]
        assert job.main([*where, *more]) == 0
        return tmp_path / "run" / "eval" / label

    return run


def records(stage: Path) -> dict[tuple[str, int], EpisodeRecord]:
    return {(record.trial.uid, record.trial.index): record for record in read_records(stage)}


def course(record: EpisodeRecord) -> list[tuple[Any, ...]]:
    """What was said and called, without the calls' ids."""
    return [
        (
            m["role"],
            m.get("content"),
            [(c["function"]["name"], c["function"]["arguments"]) for c in m.get("tool_calls", ())],
        )
        for m in record.messages
    ]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_chat_endpoint_is_the_same_agent_as_the_token_sampler(evaluate: Any, temperature: float) -> None:
    given = [f"sampling.temperature={temperature}"]
    tokens, chat = records(evaluate("base", *given)), records(evaluate("api", *given))
    assert tokens.keys() == chat.keys()
    assert len(tokens) == 10 * TRIALS
    for trial, ours in tokens.items():
        theirs = chat[trial]
        assert course(theirs) == course(ours), trial
        assert (theirs.outcome, theirs.finish, theirs.final_state) == (ours.outcome, ours.finish, ours.final_state)
        assert theirs.usage["policy"].prompt == ours.usage["policy"].prompt, "the server rendered the same tokens"
        assert theirs.usage["policy"].completion == ours.usage["policy"].completion


def test_two_replicas_run_what_one_does(evaluate: Any) -> None:
    one = evaluate("base")
    two = evaluate("halves", "--model", str(model_path(load_config(CONFIG, []))), "--write-plan", "--shards", "2")
    shards = sorted((two / "plan").glob("*.json"))
    assert [run_shard(str(shard))["ran"] for shard in shards] == [5 * TRIALS] * 2
    assert len(list((two / "shards").glob("*.h5"))) == 2
    evaluate("halves", "--model", str(model_path(load_config(CONFIG, []))), "--finish")
    runs = [load_run(stage) for stage in (one, two)]
    assert all(run.scored for run in runs)
    assert {r.trial for r in records(one).values()} == {r.trial for r in records(two).values()}
    # The checkout may be edited while this runs.
    assert [d.name for d in differences(runs[0].plan, runs[1].plan, "", allow=[]) if d.name != "commit"] == []
    assert {key: course(r) for key, r in records(one).items()} == {key: course(r) for key, r in records(two).items()}
