"""What is refused before the first step, by the name of what is wrong."""

from __future__ import annotations

import datetime
import json
import struct
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from stateward.config import Config, load_config
from stateward.errors import UserError
from stateward.practice.policy import SHIPPED
from stateward.tasks.task import Check, Task
from stateward.training import checks, verify
from stateward.training.dataset import check_pool, read_tasks, write_dataset, write_tasks
from stateward.training.layout import resolve_layout
from stateward.training.memory import ModelSize, amount, budgets, check_budgets, model_size
from stateward.training.plan import plan_training

ROOT = Path(__file__).parents[2]


def task(number: int) -> Task:
    check = Check(file="f.py", function=f"test_{number}", source="")
    return Task(uid=f"f.py:test_{number}", domain="d", system="s", query="q", check=check)


def write_safetensors(path: Path, shapes: dict[str, list[int]], dtype: str = "BF16") -> None:
    header = {name: {"dtype": dtype, "shape": shape, "data_offsets": [0, 0]} for name, shape in shapes.items()}
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text)


def checkpoint(folder: Path) -> Path:
    folder.mkdir()
    sizes = {"num_hidden_layers": 2, "hidden_size": 8, "intermediate_size": 16, "vocab_size": 32}
    sizes |= {"num_attention_heads": 2}
    (folder / "config.json").write_text(json.dumps({"text_config": sizes}))
    (folder / "tokenizer.json").write_text("{}")
    (folder / "tokenizer_config.json").write_text("{}")
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    shapes = {"model.embed_tokens.weight": [32, 8], "model.norm.weight": [8], "model.layers.0.q_proj.weight": [8, 8]}
    write_safetensors(folder / "model.safetensors", shapes)
    return folder


def test_a_whole_checkpoint_passes(tmp_path: Path) -> None:
    checks.check_model_files(checkpoint(tmp_path / "m"))


def test_a_quantised_checkpoint_is_refused_before_it_is_trained(tmp_path: Path) -> None:
    model = checkpoint(tmp_path / "m")
    write_safetensors(model / "model.safetensors", {"model.layers.0.q_proj.weight": [8, 8]}, "F8_E4M3")
    with pytest.raises(UserError, match=r"is quantised: model\.layers\.0\.q_proj\.weight is F8_E4M3"):
        checks.check_model_files(model)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    model = checkpoint(tmp_path / "m")
    (model / name).unlink()
    with pytest.raises(UserError, match=name.replace("model.", r"\*.")):
        checks.check_model_files(model)


def test_a_missing_shard_of_the_index_is_named(tmp_path: Path) -> None:
    model = checkpoint(tmp_path / "m")
    index = {"weight_map": {"a": "model.safetensors", "b": "model-00002.safetensors"}}
    (model / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(UserError, match=r"model-00002\.safetensors"):
        checks.check_model_files(model)


def test_a_checkpoint_without_a_template_is_refused(tmp_path: Path) -> None:
    model = checkpoint(tmp_path / "m")
    (model / "chat_template.jinja").unlink()
    with pytest.raises(UserError, match="no chat template"):
        checks.check_model_files(model)
    (model / "tokenizer_config.json").write_text(json.dumps({"chat_template": "{{ messages }}"}))
    checks.check_model_files(model)


@pytest.mark.parametrize(
    ("heads", "pairs", "override", "text"),
    [
        (24, 4, "train.ulysses=4", ""),
        (24, 4, "train.ulysses=8", ""),  # eight devices share four pairs of keys and values
        (24, 6, "train.ulysses=4", "train.ulysses=4 does not divide"),
        (20, 4, "train.ulysses=8", "20 heads and 4 pairs"),
        (18, 2, "train.rollout_tensor_parallel=4", "use one of 1, 2, 6, 18"),
    ],
)
def test_attention_heads_are_divided(tmp_path: Path, heads: int, pairs: int, override: str, text: str) -> None:
    inner = {"num_attention_heads": heads, "num_key_value_heads": pairs}
    (tmp_path / "config.json").write_text(json.dumps({"text_config": inner}))
    layout = resolve_layout(
        full("train.ulysses=1", "train.rollout_tensor_parallel=1", "train.nodes=1", "train.groups_per_step=8", override)
    )
    if not text:
        return checks.check_heads(tmp_path, layout)
    with pytest.raises(UserError, match=text):
        checks.check_heads(tmp_path, layout)
    return None


@pytest.mark.parametrize(
    ("model_type", "kind", "ulysses", "refused"),
    [
        ("qwen3_5", "linear_attention", 2, False),
        ("qwen3_5_moe", "linear_attention", 2, False),
        ("qwen3_next", "linear_attention", 2, True),
        ("qwen3_5_text", "linear_attention", 2, True),  # Verl asks for the type of the whole model
        ("qwen3_next", "linear_attention", 1, False),
        ("gemma3", "sliding_attention", 2, False),
    ],
)
def test_a_hybrid_is_divided_only_where_its_state_is_passed_on(
    tmp_path: Path, model_type: str, kind: str, ulysses: int, refused: bool
) -> None:
    inner = {"layer_types": [kind, "full_attention"]}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type, "text_config": inner}))
    layout = resolve_layout(full(f"train.ulysses={ulysses}"))
    if not refused:
        return checks.check_hybrid(tmp_path, layout)
    with pytest.raises(UserError, match=f"train.ulysses=2 with linear attention of model_type '{model_type}'"):
        checks.check_hybrid(tmp_path, layout)
    return None


def test_the_guards_evidence_must_be_about_this_pool(tmp_path: Path) -> None:
    evidence = tmp_path / "contamination.json"
    with pytest.raises(UserError, match="not there"):
        checks.check_disjoint(evidence, [task(0)])
    evidence.write_text(json.dumps({"verdict": "disjoint", "pool": [{"uid": task(0).uid}]}))
    checks.check_disjoint(evidence, [task(0)])
    with pytest.raises(UserError, match="test_1"):
        checks.check_disjoint(evidence, [task(0), task(1)])
    evidence.write_text(json.dumps({"verdict": "overlap", "pool": [{"uid": task(0).uid}]}))
    with pytest.raises(UserError, match="overlap"):
        checks.check_disjoint(evidence, [task(0)])


def test_room_for_checkpoints(tmp_path: Path) -> None:
    checks.check_room(tmp_path / "new", 1e3)
    with pytest.raises(UserError, match="free"):
        checks.check_room(tmp_path, 1e18)


@pytest.fixture(name="disk")
def _disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Path]:
    """A folder on a disk of `total` bytes, of which only checkpoints take any."""
    root = tmp_path / "checkpoints"

    def of(total: int) -> Path:
        def usage(folder: Path) -> SimpleNamespace:
            return SimpleNamespace(free=total - sum(path.stat().st_size for path in root.rglob("data.pt")))

        monkeypatch.setattr(checks.shutil, "disk_usage", usage)
        return root

    return of


def saved(root: Path, name: str, size: int, *, whole: bool = True) -> Path:
    folder = root / name
    folder.mkdir(parents=True)
    (folder / "data.pt").write_bytes(bytes(size))
    if whole:
        (folder / verify.MARK).write_text(json.dumps({"bytes": {"data.pt": size}}))
    return folder


def test_a_runs_own_checkpoints_count_as_written(disk: Callable[[int], Path]) -> None:
    root = disk(3_500)
    checks.check_room(root, 3_000)
    for step in (5, 10):
        saved(root, f"global_step_{step}", 1_000)
        checks.check_room(root, 3_000)
    with pytest.raises(UserError, match="besides the 2 that stand there"):
        checks.check_room(disk(2_900), 3_000)


def test_what_a_killed_save_left_goes_where_the_room_is_not_enough(disk: Callable[[int], Path]) -> None:
    root = disk(5_000)
    for step in (5, 10):
        saved(root, f"global_step_{step}", 1_000)
    left = saved(root, "incomplete-global_step_15", 900, whole=False)
    checks.check_room(root, 3_000)
    assert left.is_dir()
    checks.check_room(disk(3_500), 3_000)
    assert not left.exists()


def test_the_pool_fills_a_step_with_different_tasks() -> None:
    check_pool([task(i) for i in range(4)], 4)
    for pool, text in (([], "empty"), ([task(0)] * 2, "twice"), ([task(0)], "more than the pool's 1 tasks")):
        with pytest.raises(UserError, match=text):
            check_pool(pool, 2)


def test_dataset_and_tasks_come_back(tmp_path: Path) -> None:
    import pyarrow.parquet

    tasks = [task(i) for i in range(3)]
    write_dataset(tmp_path / "a" / "pool.parquet", tasks)
    rows = pyarrow.parquet.read_table(tmp_path / "a" / "pool.parquet").to_pylist()
    assert [row["extra_info"]["task"] for row in rows] == [t.uid for t in tasks]
    write_tasks(tmp_path / "tasks.json", tasks)
    assert read_tasks(tmp_path / "tasks.json") == {t.uid: t for t in tasks}
    assert (tmp_path / "tasks.json").stat().st_mode & 0o777 == 0o600  # tokens of servers.yaml are in it
    with pytest.raises(UserError, match="JSON does not have"):
        write_tasks(tmp_path / "tasks.json", [replace(tasks[0], world={"shop": {"day": datetime.date(2026, 1, 1)}})])
    assert read_tasks(tmp_path / "tasks.json") == {t.uid: t for t in tasks}


def test_sizes_come_from_the_headers(tmp_path: Path) -> None:
    size = model_size(checkpoint(tmp_path / "m"))
    assert (size.parameters, size.adapter) == (32 * 8 + 8 + 64, 16)
    assert (size.layers, size.hidden, size.vocabulary) == (2, 8, 32)
    assert (size.attention_layers, size.pairs, size.head) == (2, 2, 4)


@pytest.mark.parametrize(
    "told", [{"full_attention_interval": 4}, {"layer_types": [*["linear_attention"] * 3, "full_attention"] * 2}]
)
def test_a_hybrid_model_keeps_keys_and_values_in_some_layers(tmp_path: Path, told: dict[str, object]) -> None:
    model = checkpoint(tmp_path / "m")
    config = json.loads((model / "config.json").read_text())
    config["text_config"] |= {"num_hidden_layers": 8, "num_key_value_heads": 1, "head_dim": 16, **told}
    (model / "config.json").write_text(json.dumps(config))
    size = model_size(model)
    assert (size.attention_layers, size.pairs, size.head) == (2, 1, 16)


#: About Qwen3.8-27B.
LARGE = ModelSize(
    parameters=27_000_000_000,
    adapter=5_000_000,
    layers=64,
    hidden=5_120,
    intermediate=17_408,
    vocabulary=248_320,
    attention_layers=16,
    pairs=4,
    head=256,
)


def full(*overrides: str) -> Config:
    return load_config(ROOT / "configs" / "q38_full.yaml", overrides)


def test_the_published_run_fits_three_nodes_and_says_how() -> None:
    config = full()
    found = budgets(config, resolve_layout(config), LARGE)
    check_budgets(found)
    update, sampling, _, host, disk = found
    assert update.total == pytest.approx(73.7e9, rel=0.01)
    assert host.total > 12 * 27e9 / 3
    assert disk.total == 3 * 12 * 27e9
    assert sampling.total < 80e9
    assert "4.5 GB  weights, fp32 shard" in "\n".join(update.lines())


def test_a_dry_run_counts_the_memory_where_the_weights_are(tmp_path: Path) -> None:
    plan = plan_training(full(), tmp_path, checkpoint(tmp_path / "m"))
    text = "\n".join(plan.lines())
    assert "# device while updating: " in text
    assert "MB  Adam, fp32 shard  (8 T / W)" in text
    assert "not counted" in "\n".join(plan_training(full(), tmp_path, tmp_path / "none").lines())


def test_small_amounts_are_shown_in_megabytes() -> None:
    sizes = [0, 4.04e6, 99.9e6, 100e6, 62.13e9]
    assert [amount(size) for size in sizes] == ["0.0 GB", "4.0 MB", "99.9 MB", "0.1 GB", "62.1 GB"]


def test_a_dry_run_of_the_practice_campaign_counts_the_shipped_policy(
    run_job: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    printed = run_job("train", "--config", ROOT / "configs" / "practice.yaml", "--dry-run").stdout
    weights = [line.split()[1:3] for line in printed.splitlines() if "weights, fp32 shard" in line]
    assert weights == [[f"{4 * model_size(SHIPPED).parameters / 1e6:.1f}", "MB"]]


def test_one_node_of_eighty_gigabytes_is_too_small_for_it_and_every_term_is_shown() -> None:
    config = full("train.nodes=1", "train.groups_per_step=16")
    with pytest.raises(UserError) as caught:
        check_budgets(budgets(config, resolve_layout(config), LARGE))
    text = str(caught.value)
    assert "device while updating" in text
    assert "Adam, fp32 shard" in text
    assert "train.lora_rank" in text


def terms(config: Config, budget: int) -> dict[str, float]:
    return {term.name: term.bytes for term in budgets(config, resolve_layout(config), LARGE)[budget].terms}


def test_the_fused_loss_holds_the_head_three_times_and_a_chunks_logits() -> None:
    head, fused = 248_320 * 5_120, terms(full(), 0)
    assert fused["LM head gathered, its gradient, a chunk's summand"] == 3 * 4 * head
    assert fused["logits of a chunk"] == 5 * 4 * 512 * 248_320
    assert terms(full("train.fused_kernels=false"), 0)["LM head gathered, with gradient"] == 8 * head


def test_a_sleeping_engine_and_pinned_memory_are_counted_on_devices_alone() -> None:
    host = terms(full(), 3)
    assert host["rounding of pinned memory"] == host["offloaded shards"] / 2 == 12 * 27e9 / 3 / 2
    assert host["loading, on each rank"] == 8 * 6 * 248_320 * 5_120
    assert terms(full(), 0)["what a sleeping vLLM keeps"] == 4e9
    practice = load_config(ROOT / "configs" / "practice.yaml")
    update, _, _, node, _ = budgets(practice, resolve_layout(practice), LARGE)
    assert "what a sleeping vLLM keeps" not in {term.name for term in update.terms}
    assert [term.bytes for term in node.terms if term.name == "rounding of pinned memory"] == [0]


def test_an_adapter_makes_it_fit_and_lets_vllm_sleep_on_the_host() -> None:
    config = load_config(ROOT / "configs" / "q36_27b_lora.yaml")
    check_budgets(budgets(config, resolve_layout(config), LARGE))
    asleep = "vLLM's weights while it sleeps"
    assert terms(config, 3)[asleep] == 2 * 2 * 27e9  # two engines
    assert terms(full(), 3)[asleep] == 0


def test_logits_are_counted_where_no_kernel_spares_them() -> None:
    assert "logits" not in terms(full(), 0)
    one = 2 * 33_280 * 248_320
    assert terms(full("train.fused_kernels=false"), 0)["logits"] == one
    assert terms(full("train.fused_kernels=false", "sampling.temperature=0.7"), 0)["logits"] == 2 * one
    config = full("train.fused_kernels=false", "sampling.temperature=0.7")
    with pytest.raises(UserError, match=r"train\.fused_kernels=true"):
        check_budgets(budgets(config, resolve_layout(config), LARGE))


def test_an_engine_needs_room_for_its_weights_and_the_longest_episode() -> None:
    config = full("train.rollout_tensor_parallel=1")
    kept = 2 * 2 * 133_120 * 16 * 256 * 4
    assert terms(config, 2) == {"weights": 54e9, "keys and values of the longest episode": kept}
    with pytest.raises(UserError, match=r"vLLM's share of a device 63 GB of 56 GB"):
        check_budgets(budgets(config, resolve_layout(config), LARGE))
    shared = terms(full("train.rollout_tensor_parallel=8"), 2)  # eight devices, four pairs: one pair each
    assert shared["keys and values of the longest episode"] == kept / 4


def test_an_unknown_memory_is_not_judged() -> None:
    config = full("train.nodes=1", "train.groups_per_step=16", "train.device_memory_gb=0", "train.host_memory_gb=0")
    check_budgets(budgets(config, resolve_layout(config), LARGE))
