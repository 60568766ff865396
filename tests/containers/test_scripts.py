"""The scripts around the images, with a stand-in for apptainer: what would be built, from what, and what is refused."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

APPTAINER = """\
#!/bin/bash
printf '%s\\n' "$@" > "$NOTES/arguments"
find . -type f > "$NOTES/context"
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of what an image is built from, with things beside it that no image may hold."""
    copy = tmp_path / "checkout"
    copy.mkdir()
    for name in ("lib", "jobs", "configs", "containers", "sbatch"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy / name)
    (copy / "runs").mkdir()
    (copy / "runs" / "secrets.env").write_text("KEY=1\n")
    (copy / "lib" / "stateward" / "__pycache__").mkdir(exist_ok=True)
    (copy / "lib" / "stateward" / "__pycache__" / "x.pyc").touch()
    return copy


def build(checkout: Path, tmp_path: Path, *options: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "bin").mkdir(exist_ok=True)
    fake = tmp_path / "bin" / "apptainer"
    fake.write_text(APPTAINER)
    fake.chmod(0o755)
    (checkout / ".venv" / "bin").mkdir(parents=True, exist_ok=True)
    python = checkout / ".venv" / "bin" / "python"
    if not python.exists():
        # The copy has no environment; this test's own one stands for it.
        python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
        python.chmod(0o755)
    env = os.environ | {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "NOTES": str(tmp_path)}
    command = ["bash", str(checkout / "containers" / "image.sh"), str(tmp_path / "x.sif"), *options]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


def test_the_image_is_built_from_the_sources_alone(checkout: Path, tmp_path: Path) -> None:
    done = build(checkout, tmp_path, "--fakeroot", "--build-arg", "BASE=nvidia/cuda@sha256:00")
    assert done.returncode == 0, done.stderr
    arguments = (tmp_path / "arguments").read_text().splitlines()
    assert arguments[0] == "build"
    assert arguments[-2:] == [str(tmp_path / "x.sif"), "containers/apptainer.def"]
    assert {"--fakeroot", "BASE=nvidia/cuda@sha256:00", "COMMIT=unknown"} <= set(arguments)
    context = (tmp_path / "context").read_text()
    assert "./lib/stateward/errors.py" in context
    assert "./containers/requirements.lock" in context
    assert not re.search(r"secrets|__pycache__|\.venv|egg-info", context)


def test_every_file_that_a_definition_copies_is_there(checkout: Path) -> None:
    for name in ("apptainer.def", "practice.def"):
        text = (checkout / "containers" / name).read_text()
        files = text[text.index("%files\n") :].split("\n\n")[0].splitlines()[1:]
        assert len(files) == 8
        for line in files:
            assert (checkout / line.split()[0]).exists(), line


def test_a_drifted_lock_ends_before_anything_is_built(checkout: Path, tmp_path: Path) -> None:
    lock = checkout / "containers" / "requirements.lock"
    lock.write_text(lock.read_text().replace("\nverl==0.9.1 ", "\nverl==0.9.0 "))
    done = build(checkout, tmp_path)
    assert done.returncode == 1
    assert "verl==0.9.1 is not met by verl==0.9.0" in done.stderr
    assert not (tmp_path / "arguments").exists()


def test_what_the_build_calls_was_installed_before() -> None:
    """Ubuntu's packages of python3.12 bring no `python3`, and libnuma1 no libnuma.so, by which Verl binds."""
    definition = (ROOT / "containers" / "apptainer.def").read_text()
    install, _, after = definition.partition("apt-get -qq install")[2].partition("> /dev/null")
    packages = install.replace("\\", " ").split()
    assert {"python3", "python3.12", "python3.12-venv", "python3.12-dev", "libnuma-dev"} <= set(packages)
    assert "python3 " not in definition.partition("%post")[2].partition("apt-get -qq install")[0]
    assert "python3 -c" in after
    assert "UV_CONCURRENT_BUILDS=1" in (ROOT / "containers" / "environment.sh").read_text()


def test_the_pins_of_the_definition_are_those_of_the_lock() -> None:
    """CUDA and NCCL stand in the definition too, where %post checks them."""
    definition = (ROOT / "containers" / "apptainer.def").read_text()
    lock = (ROOT / "containers" / "requirements.lock").read_text()
    arguments = dict(re.findall(r"^    ([A-Z]+)=(\S*)$", definition, re.MULTILINE))
    (nccl,) = re.findall(r"^nvidia-nccl-cu13==(\S+)", lock, re.MULTILINE)
    (runtime,) = re.findall(r"^nvidia-cuda-runtime==(\d+\.\d+)", lock, re.MULTILINE)
    assert (arguments["NCCL"], arguments["CUDA"]) == (nccl, runtime)
    assert arguments["BASE"].startswith(f"nvidia/cuda:{runtime}.")
