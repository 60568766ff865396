"""Small corrections of Verl 0.9.1, each guarded by the source it was written against.

A hook replaces one function when the module that holds it is imported, in whichever process that happens. It is applied
only if the installed Verl is the known version and the function's source is the known source; anything else raises, so
that a correction is never silently lost or put onto code that it does not fit. `active` is what a process shows for
proof. `corrections` holds the replacements.
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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from stateward.training import corrections, weight_sockets

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
    """

    name: str
    module: str
    target: str
    source: str
    build: Callable[[Any], Any]


_applied: set[str] = set()


def install() -> None:
    """Arrange for every hook. Called once a process, while Verl itself is being imported.

    Raises:
        HookRefused: another version of Verl is installed.
    """
    version = importlib.metadata.version("verl")
    if version != KNOWN_VERL:
        raise HookRefused(f"Verl {version} is installed; the corrections were written for {KNOWN_VERL}")
    for hook in HOOKS:
        if hook.module in sys.modules:
            apply(hook, sys.modules[hook.module])
    sys.meta_path.insert(0, _Finder({hook.module for hook in HOOKS} - sys.modules.keys()))


def active() -> set[str]:
    """Names of the hooks that are in place in this process."""
    return set(_applied)


def report() -> str:
    """What is wrong with the hooks of this process: empty if every one whose module was imported is in place."""
    missing = sorted(hook.name for hook in HOOKS if hook.name not in _applied and hook.module in sys.modules)
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
        for hook in HOOKS:
            if hook.module == module.__name__:
                apply(hook, module)


_FSDP = "verl.workers.engine.fsdp.transformer_impl"
_VLLM = "verl.workers.rollout.vllm_rollout"
HOOKS: tuple[Hook, ...] = (
    Hook(
        name="head_on_device",
        module="verl.utils.experimental.torch_functional",
        target="FusedLinearForPPO.forward",
        source="46b1b936f12c545a",
        build=corrections.head_on_device,
    ),
    Hook(
        name="reduced_head",
        module="verl.models.transformers.qwen3_5",
        target="forward_with_torch_backend",
        source="cf211794f2782018",
        build=corrections.reduced_head,
    ),
    Hook(
        name="reduced_head_vl",
        module="verl.models.transformers.qwen3_vl",
        target="forward_with_torch_backend",
        source="c428c9324e112912",
        build=corrections.reduced_head,
    ),
    Hook(
        name="reduce_every_micro_batch",
        module=_FSDP,
        target="FSDPEngine._gradient_sync_context",
        source="6caa9c40150addcc",
        build=corrections.reduce_every_micro_batch,
    ),
    Hook(
        name="multimodal_by_inputs",
        module=_FSDP,
        target="FSDPEngineWithLMHead.prepare_model_inputs",
        source="e7a30a3b61b58c8b",
        build=corrections.multimodal_by_inputs,
    ),
    Hook(
        name="frozen_embeddings",
        module=_FSDP,
        target="FSDPEngine._build_module",
        source="3935df3e22bb9ad0",
        build=corrections.frozen_embeddings,
    ),
    Hook(
        name="seeded_adapter",
        module=_FSDP,
        target="FSDPEngine._build_lora_module",
        source="31ad1f73ed3cb764",
        build=corrections.seeded_adapter,
    ),
    Hook(
        name="adapter_names",
        module="verl.utils.vllm.utils",
        target="VLLMHijack.hijack",
        source="4104616b134ccf5c",
        build=corrections.adapter_names,
    ),
    Hook(
        name="own_sender",
        module=f"{_VLLM}.bucketed_weight_transfer",
        target="BucketedWeightSender._init_socket",
        source="acd9dd63022ee7d0",
        build=weight_sockets.own_sender,
    ),
    Hook(
        name="own_receiver",
        module=f"{_VLLM}.bucketed_weight_transfer",
        target="BucketedWeightReceiver._init_socket",
        source="63f7edee883b1597",
        build=weight_sockets.own_receiver,
    ),
    Hook(
        name="remembered_call",
        module=f"{_VLLM}.vllm_rollout",
        target="ServerAdapter._execute_method",
        source="f58c74367fbad112",
        build=weight_sockets.remembered_call,
    ),
    Hook(
        name="process_group",
        module="verl.utils.distributed",
        target="initialize_global_process_group_ray",
        source="761a94d1a2e058d3",
        build=corrections.process_group,
    ),
)
