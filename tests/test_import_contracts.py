"""The import contracts of pyproject.toml hold, and what they forbid is noticed."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "lib" / "stateward"

#: What is wrong: the module, the code that is added to it, and what the check says.
LOOPHOLES = {
    "upward": (
        "training/groups.py",
        "from stateward.campaign import sampling",
        "- stateward.training.groups -> stateward.campaign.sampling",
    ),
    "sideways": (
        "difficulty/walk.py",
        "from stateward.training import groups",
        "- stateward.difficulty.walk -> stateward.training.groups",
    ),
    "cluster knows tasks": (
        "cluster/finding.py",
        "from stateward.tasks import task",
        "- stateward.cluster.finding -> stateward.tasks.task",
    ),
    "a program": (
        "sandbox/state.py",
        "from stateward.sandbox import play",
        "- stateward.sandbox.state -> stateward.sandbox.play",
    ),
    "a cycle, in a function": (
        "training/paths.py",
        "def later():\n    from stateward.training import run",
        "No cycles are allowed in stateward.training.",
    ),
    "a cycle, of types alone": (
        "sandbox/limits.py",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from stateward.sandbox.sandbox import Sandbox",
        "No cycles are allowed in stateward.sandbox.",
    ),
    "importlib": (
        "store/lock.py",
        "import importlib\nimportlib.import_module('stateward.campaign.sampling')",
        "- stateward.store.lock -> stateward.campaign.sampling",
    ),
    "__import__ of a name put together": (
        "outcome.py",
        "def load(name):\n    return __import__(f'stateward.store.{name}')",
        "- stateward.outcome -> stateward.store",
    ),
    "python -m in a list": (
        "tasks/tags.py",
        "COMMAND = ['python', '-m', 'stateward.training.driver']",
        "- stateward.tasks.tags -> stateward.training.driver",
    ),
    "python -m in a line": (
        "policy/turn.py",
        "COMMAND = 'exec python -u -m stateward.episode.loop --all'",
        "- stateward.policy.turn -> stateward.episode.loop",
    ),
    "a package without a layer": ("extra/__init__.py", "", "- stateward.extra"),
}


def check(root: Path) -> tuple[bool, str]:
    """Whether the contracts of the tree at `root` are kept, and what was printed."""
    command = [sys.executable, str(ROOT / "tools" / "import_contracts.py"), str(root)]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True)
    return done.returncode == 0, re.sub(" +", " ", done.stdout + done.stderr)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A tree with the package's modules and the contracts."""
    for path in PACKAGE.rglob("*.py"):
        if "dataset" not in path.parts:
            target = tmp_path / path.relative_to(ROOT)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
    shutil.copyfile(ROOT / "pyproject.toml", tmp_path / "pyproject.toml")
    return tmp_path


def add(root: Path, module: str, code: str) -> None:
    path = root / "lib" / "stateward" / module
    path.parent.mkdir(exist_ok=True)
    with path.open("a") as file:
        file.write(f"\n{code}\n")


def test_the_contracts_are_kept() -> None:
    kept, text = check(ROOT)
    assert kept, text


def test_every_loophole_is_noticed(copy: Path) -> None:
    for module, code, _ in LOOPHOLES.values():
        add(copy, module, code)
    kept, text = check(copy)
    assert not kept
    missed = [name for name, (_, _, told) in LOOPHOLES.items() if told not in text]
    assert not missed, text


def test_a_cycle_through_a_package_is_noticed(copy: Path) -> None:
    """import-linter alone does not see it."""
    add(copy, "store/lock.py", "from stateward.store import Stage")
    kept, text = check(copy)
    assert "BROKEN" not in text
    assert not kept
    assert "import cycle: stateward.store" in text


def test_no_catch_all_modules() -> None:
    bad = [path for path in PACKAGE.rglob("*") if path.stem in {"utils", "helpers", "common", "misc"}]
    assert not bad, f"name these after what they hold: {bad}"
