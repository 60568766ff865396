"""Prove an image: every package imports, the pins are the installed versions, and our corrections fit this Verl.

    verify.py LOCK [--compiled]

Run at build (%post) and by `apptainer test`; needs no GPU. Each fault is one line, and the exit status is then 1.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from lock import blocks, normal

MODULES = (
    "torch",
    "transformers",
    "vllm",
    "ray",
    "verl",
    "transfer_queue",
    "tensordict",
    "fastmcp",
    "mcp",
    "h5py",
    "typesense",
)
#: Compiled in the cluster's image. They hold GPU code alone, so the practice image has none of them.
COMPILED = ("flash_attn", "causal_conv1d", "fla")
OURS = (
    "stateward.training.verl_plugin",
    "stateward.campaign.stages",
    "stateward.cluster.ray_cluster",
    "stateward.sandbox",
)


def main(lock: str, *, compiled: bool) -> int:
    wrong: list[str] = []

    def attempt(what: str, act: Callable[[], object]) -> None:
        try:
            act()
        except Exception as error:  # noqa: BLE001 - whatever is wrong with a package is a line of the report
            wrong.append(f"{what}: {type(error).__name__}: {error}")

    for name, version, _ in blocks(Path(lock)):
        found = installed().get(name)
        if found != version:
            wrong.append(f"{name}: {found or 'nothing'} is installed, the lock says {version}")
    for module in (*MODULES, *(COMPILED if compiled else ()), *OURS):
        attempt(f"import {module}", lambda module=module: importlib.import_module(module))
    attempt("hooks", hooks)
    for line in wrong:
        print(f"verify: {line}", file=sys.stderr)
    if not wrong:
        print(f"verify: {len(installed())} packages as locked, {len(MODULES) + len(OURS)} imports, hooks fit Verl")
    return 1 if wrong else 0


def installed() -> dict[str, str]:
    """Normalised name → version of every package of this environment."""
    return {normal(dist.metadata["Name"]): dist.version for dist in importlib.metadata.distributions()}


def hooks() -> None:
    """Every correction of Verl stands on the source that is installed here."""
    from stateward.cluster.services.vllm_metadata import metadata_environment
    from stateward.training import verl_hooks

    if importlib.metadata.version("verl") != verl_hooks.KNOWN_VERL:
        raise RuntimeError(f"Verl {importlib.metadata.version('verl')}; they were written for {verl_hooks.KNOWN_VERL}")
    before = list(sys.path)
    with tempfile.TemporaryDirectory() as folder:
        # Verl's modules for vLLM ask which version it is, and the CPU build has another name.
        sys.path[:0] = metadata_environment(Path(folder), {}).values()
        try:
            for hook in verl_hooks.HOOKS:
                target: object = importlib.import_module(hook.module)
                for part in hook.target.split("."):
                    target = getattr(target, part)
                target = getattr(target, "__wrapped__", target)
                if verl_hooks.source_digest(target) != hook.source:
                    raise RuntimeError(f"{hook.name}: {hook.module}.{hook.target} has another source")
        finally:
            sys.path[:] = before


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], compiled="--compiled" in sys.argv[2:]))
