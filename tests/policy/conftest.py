from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest


def _load(stem: str) -> ModuleType:
    """A module that lies beside the tests, of another area too; test folders are no packages."""
    name = f"stateward_tests_{stem}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{stem}.py"))
        assert spec
        assert spec.loader
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]


@pytest.fixture(scope="session")
def qwen() -> ModuleType:
    return _load("qwen_like")


@pytest.fixture
def endpoint() -> Iterator[Any]:
    """See `faulty_endpoint.Endpoint`."""
    made = _load("faulty_endpoint").Endpoint()
    yield made
    made.close()
