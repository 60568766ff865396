"""The lock of the cluster image: it holds what pyproject.toml asks for, hashes for all of it, and it resolves."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
CONTAINERS = ROOT / "containers"


@pytest.fixture(scope="module")
def lock() -> ModuleType:
    spec = importlib.util.spec_from_file_location("containers_lock", CONTAINERS / "lock.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def check(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(CONTAINERS / "lock.py"), "check", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_both_locks_hold_what_the_project_asks_for() -> None:
    for done in (
        check("cluster", CONTAINERS / "requirements.lock"),
        check("practice", CONTAINERS / "practice.lock", "torch==2.13.0"),
    ):
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (r"^verl==0\.9\.1 ", "verl==0.9.2 ", "verl==0.9.1 is not met by verl==0.9.2"),
        (r"^fastmcp==[\d.]+ ", "fastmcp==2.1 ", "fastmcp>=2.10 is not met by fastmcp==2.1"),
        (r"^datasketch==[\d.]+ \\\n(?:    .*\n)+", "", "datasketch>=1.6 is not in drifted.lock"),
    ],
)
def test_a_drifted_lock_is_refused_with_what_to_do(tmp_path: Path, old: str, new: str, said: str) -> None:
    text = (CONTAINERS / "requirements.lock").read_text()
    drifted = tmp_path / "drifted.lock"
    changed, number = re.subn(old, new, text, flags=re.MULTILINE)
    assert number == 1
    drifted.write_text(changed)
    done = check("cluster", drifted)
    assert done.returncode == 1
    assert said in done.stderr
    assert "make cluster-lock" in done.stderr


def test_every_package_has_a_hash_and_only_the_compiled_ones_are_sources(lock: ModuleType) -> None:
    packages = list(lock.blocks(lock.LOCK))
    names = [name for name, _, _ in packages]
    assert len(names) > 250
    assert len(set(names)) == len(names)
    assert [name for name, _, text in packages if "--hash=sha256:" not in text] == []
    assert set(lock.COMPILED) <= set(names)


def test_the_split_loses_nothing(lock: ModuleType) -> None:
    parts = [
        subprocess.run(
            [sys.executable, str(CONTAINERS / "lock.py"), part, str(lock.LOCK)],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for part in ("wheels", "sources")
    ]
    assert sorted("".join(parts).splitlines()) == sorted(
        line for line in lock.LOCK.read_text().splitlines() if not line.startswith("# ")
    )
    assert re.findall(r"^([\w-]+)==", parts[1], re.MULTILINE) == sorted(lock.COMPILED)


@pytest.mark.slow
def test_it_resolves_for_the_cluster_and_to_these_very_pins(lock: ModuleType, tmp_path: Path) -> None:
    """With the registry's metadata alone: no wheel is downloaded. What the lock pins is kept where it still fits."""
    again = tmp_path / "requirements.lock"
    shutil.copy(lock.LOCK, again)
    done = subprocess.run(
        lock.resolve_command(again), cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode and re.search(r"error sending request|dns error|timed out|Connection refused", done.stderr):
        pytest.skip(f"the package registry is not reached: {done.stderr.strip().splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    assert _pins(again) == _pins(lock.LOCK), "make cluster-lock"


def _pins(path: Path) -> list[str]:
    return re.findall(r"^[\w.-]+==\S+", path.read_text(), re.MULTILINE)
