"""Small corrections of Verl 0.9.1, each guarded by the source it was written against.

A hook replaces one function when the module that holds it is imported, in whichever process that happens. It is applied
only if the installed Verl is the known version and the function's source is the known source; anything else raises, so
that a correction is never silently lost or put onto code that it does not fit. `active` is what a process shows for
proof.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.abc
import importlib.machinery
import importlib.metadata
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType, SimpleNamespace
from typing import Any

KNOWN_VERL = "0.9.1"


class HookRefused(RuntimeError):
    """The installed Verl is not the one that a hook was written against."""


@dataclass(frozen=True)
class Hook:
    """One replacement.

    Attributes:
        target: ``Class.method`` or ``function`` in `module`.
        source: first 16 hex digits of the SHA-256 of the target's source text.
        build: the original → its replacement.
        platform: only with this ``VERL_PLATFORM``; empty for every one.
    """

    name: str
    module: str
    target: str
    source: str
    build: Callable[[Any], Any]
    platform: str = ""


_applied: set[str] = set()


def install() -> None:
    """Arrange for every hook of this platform. Called once a process, while Verl itself is being imported.

    Raises:
        HookRefused: another version of Verl is installed.
    """
    version = importlib.metadata.version("verl")
    if version != KNOWN_VERL:
        raise HookRefused(f"Verl {version} is installed; the corrections were written for {KNOWN_VERL}")
    wanted = expected()
    for hook in HOOKS:
        if hook.name in wanted and hook.module in sys.modules:
            apply(hook, sys.modules[hook.module])
    sys.meta_path.insert(0, _Finder({hook.module for hook in HOOKS if hook.name in wanted} - sys.modules.keys()))


def expected() -> set[str]:
    """Names of the hooks that belong to this process's platform."""
    platform = os.environ.get("VERL_PLATFORM", "")
    return {hook.name for hook in HOOKS if hook.platform in ("", platform)}


def active() -> set[str]:
    """Names of the hooks that are in place in this process."""
    return set(_applied)


def report() -> str:
    """What is wrong with the hooks of this process: empty if every one whose module was imported is in place."""
    missing = sorted(hook.name for hook in HOOKS if hook.name in expected() - active() and hook.module in sys.modules)
    return f"process {os.getpid()} runs Verl without {', '.join(missing)}" if missing else ""


def source_digest(function: Any) -> str:
    """First 16 hex digits of the SHA-256 of a function's source text."""
    return hashlib.sha256(inspect.getsource(function).encode()).hexdigest()[:16]


def apply(hook: Hook, module: ModuleType) -> None:
    """Put one hook in place.

    Raises:
        HookRefused: the target is missing, or its source is another.
    """
    *path, last = hook.target.split(".")
    holder: Any = module
    for part in path:
        holder = getattr(holder, part, None)
    original = getattr(holder, last, None)
    if original is None:
        raise HookRefused(f"{hook.name}: {hook.module} has no {hook.target}")
    if getattr(original, "_stateward_hook", "") == hook.name:
        return
    found = source_digest(original)
    if found != hook.source:
        raise HookRefused(f"{hook.name}: the source of {hook.module}.{hook.target} is {found}, not {hook.source}")
    replacement: Any = functools.wraps(original)(hook.build(original))
    replacement._stateward_hook = hook.name
    setattr(holder, last, replacement)
    _applied.add(hook.name)


class _Finder(importlib.abc.MetaPathFinder):
    """Lets the other finders find a module, and applies its hooks right after it was executed."""

    def __init__(self, modules: set[str]) -> None:
        self._modules = modules

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in self._modules:
            return None
        self._modules.discard(name)  # the search below must not come back here
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


class _Loader(importlib.abc.Loader):
    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)  # get_source and the like, which `inspect` asks for

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self._loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        wanted = expected()
        for hook in HOOKS:
            if hook.module == module.__name__ and hook.name in wanted:
                apply(hook, module)


def _head_on_device(original: Any) -> Any:
    """The fused loss multiplies hidden states with the LM head's weight, which stays on the host when parameters are
    offloaded by policy; they must meet on one device. The gradient flows back through the copy."""

    def forward(self: Any, hidden_states: Any, vocab_weights: Any, input_ids: Any, temperature: float = 1.0) -> Any:
        if vocab_weights.device != hidden_states.device:
            vocab_weights = vocab_weights.to(hidden_states.device, non_blocking=True)
        return original(self, hidden_states, vocab_weights, input_ids, temperature)

    return forward


def _reduce_every_micro_batch(original: Any) -> Any:
    """Deferring the reduction keeps whole gradients in memory over all micro-batches: 4 bytes a parameter on every
    device, 108 GB for a 27B model. `FSDPEngineConfig` defaults to it although Verl's YAML does not."""

    @contextmanager
    def context(self: Any, *, is_last_micro_batch: bool) -> Iterator[None]:
        yield

    return context


def _multimodal_by_inputs(original: Any) -> Any:
    """Under sequence parallelism Verl asks whether the *model* can see, not whether this batch holds an image, and then
    embeds the whole sequence on every device before it is divided. A batch of text is divided here at once, and the
    decoder is told so (`_needs_initial_slice`, which Verl's wrapper of it reads)."""

    def prepare_model_inputs(self: Any, micro_batch: Any) -> Any:
        sees = hasattr(getattr(self.module, "module", self.module).config, "vision_config")
        if not (self.use_ulysses_sp and sees):
            return original(self, micro_batch)
        text_only = not _has_media(micro_batch)
        for part in self.module.modules():
            if type(part).__name__.endswith("TextModel"):
                part._needs_initial_slice = not text_only
        if not text_only:
            return original(self, micro_batch)
        with _seen_as_text_model(self):
            return original(self, micro_batch)

    return prepare_model_inputs


@contextmanager
def _seen_as_text_model(engine: Any) -> Iterator[None]:
    """The one question that the original asks of the module is whether its config has `vision_config`."""
    module = engine.__dict__["module"]
    engine.__dict__["module"] = SimpleNamespace(config=SimpleNamespace())
    try:
        yield
    finally:
        engine.__dict__["module"] = module


def _has_media(micro_batch: Any) -> bool:
    from verl.utils.model import extract_multi_modal_inputs

    return bool(extract_multi_modal_inputs(micro_batch.get("multi_modal_inputs", [])))


#: Set to 1 in every worker by `train.freeze_embeddings`.
FREEZE = "STATEWARD_FREEZE_EMBEDDINGS"


def _frozen_embeddings(original: Any) -> Any:
    """Keep token embeddings and LM head as they are where the configuration asks for it. Adam moves the row of an
    identifier that stands in a single task as far as a weight that all tasks share, so that a small policy on a small
    pool learns the tasks by heart. Verl has no setting for it."""

    def build_module(self: Any) -> Any:
        module = original(self)
        if os.environ.get(FREEZE) == "1":
            for part in (module.get_input_embeddings(), module.get_output_embeddings()):
                part.requires_grad_(False)
        return module

    return build_module


def _one_gloo(original: Any) -> Any:
    """Verl asks for the backends ``cpu:gloo,<device>:<backend>``, which on this platform would name the CPU twice."""

    def initialize(timeout_second: int | None = None, backend: str | None = None) -> None:
        original(timeout_second, backend or "cpu:gloo")

    return initialize


_FSDP = "verl.workers.engine.fsdp.transformer_impl"
HOOKS: tuple[Hook, ...] = (
    Hook(
        name="head_on_device",
        module="verl.utils.experimental.torch_functional",
        target="FusedLinearForPPO.forward",
        source="46b1b936f12c545a",
        build=_head_on_device,
    ),
    Hook(
        name="reduce_every_micro_batch",
        module=_FSDP,
        target="FSDPEngine._gradient_sync_context",
        source="6caa9c40150addcc",
        build=_reduce_every_micro_batch,
    ),
    Hook(
        name="multimodal_by_inputs",
        module=_FSDP,
        target="FSDPEngineWithLMHead.prepare_model_inputs",
        source="e7a30a3b61b58c8b",
        build=_multimodal_by_inputs,
    ),
    Hook(
        name="frozen_embeddings",
        module=_FSDP,
        target="FSDPEngine._build_module",
        source="3935df3e22bb9ad0",
        build=_frozen_embeddings,
    ),
    Hook(
        name="one_gloo",
        module="verl.utils.distributed",
        target="initialize_global_process_group_ray",
        source="761a94d1a2e058d3",
        build=_one_gloo,
        platform="cpu",
    ),
)
