from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from stateward.cluster.services.vllm import VllmServer, serve
from stateward.config import ServeConfig

HERE = Path(__file__).parent


def _load(path: Path) -> ModuleType:
    """A module that lies beside the tests; test folders are no packages."""
    name = f"stateward_tests_{path.stem}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec
        assert spec.loader
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]


@pytest.fixture(scope="session")
def qwen() -> ModuleType:
    return _load(HERE.parent / "policy" / "qwen_like.py")


@pytest.fixture(scope="session")
def corpus() -> ModuleType:
    return _load(HERE / "corpus.py")


def _serve_chat(folder: Path, qwen: ModuleType, template: str, tool_parser: str) -> Iterator[VllmServer]:
    """A server with the chat endpoint's parsers on, whose model can be made to say anything (`forced.py`)."""
    model = qwen.save_checkpoint(folder / "model", template)
    extra = {
        "enable-auto-tool-choice": True,
        "tool-call-parser": tool_parser,
        "reasoning-parser": "qwen3",
        "logits-processors": "forced:Forced",
        "async-scheduling": False,  # or the processor would see the tokens so far one step late
    }
    config = ServeConfig(tensor_parallel=1, enforce_eager=True, max_num_seqs=64, startup_seconds=1500.0, extra=extra)
    with serve(
        model, config, max_model_len=4096, log=folder / "vllm.log", environment={"PYTHONPATH": str(HERE)}
    ) as server:
        yield server


@pytest.fixture(scope="session")
def xml_server(tmp_path_factory: pytest.TempPathFactory, qwen: ModuleType) -> Iterator[VllmServer]:
    yield from _serve_chat(tmp_path_factory.mktemp("xml"), qwen, "qwen35", "qwen3_xml")


@pytest.fixture(scope="module")
def json_server(tmp_path_factory: pytest.TempPathFactory, qwen: ModuleType) -> Iterator[VllmServer]:
    yield from _serve_chat(tmp_path_factory.mktemp("json"), qwen, "qwen3", "hermes")
