"""The published evaluation's serving, as `configs/q38_full.yaml` asks vLLM for it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from stateward.cluster.services import vllm as service
from stateward.config import Config, load_config

ROOT = Path(__file__).parents[2]


@pytest.fixture
def config() -> Config:
    return load_config(ROOT / "configs" / "q38_full.yaml")


def test_serving_as_published(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "is_cpu_build", lambda: False)
    arguments = service.serve_arguments(Path("model"), config.serve, config.evaluate.max_model_len, 8000)
    text = " ".join(arguments)
    for flag in (
        *("--tensor-parallel-size 8", "--dtype bfloat16", "--max-model-len 262144", "--gpu-memory-utilization 0.85"),
        *("--max-num-seqs 16", "--max-num-batched-tokens 8192", "--enable-chunked-prefill"),
        *("--enable-prefix-caching", "--language-model-only"),
    ):
        assert flag in text
    sampling = config.sampling
    assert (sampling.temperature, sampling.top_k, sampling.top_p) == (1.0, 20, 0.95)
    assert (sampling.max_tokens_per_turn, config.evaluate.trials, config.serve.replicas) == (8192, 20, 16)


@pytest.mark.verl
def test_vllm_knows_every_flag(config: Config) -> None:
    arguments = service.serve_arguments(Path("model"), config.serve, config.evaluate.max_model_len, 8000)
    code = (
        "import importlib.util, sys\n"
        "new, old = 'vllm.entrypoints.launchers', 'vllm.entrypoints.openai'  # moved in 0.3x\n"
        "where = new if importlib.util.find_spec(new) else old\n"
        "make_arg_parser = importlib.import_module(where + '.cli_args').make_arg_parser\n"
        "from vllm.utils.argparse_utils import FlexibleArgumentParser\n"
        "found = make_arg_parser(FlexibleArgumentParser()).parse_args(['--model', *sys.argv[2:]])\n"
        "assert found.language_model_only and found.enable_chunked_prefill and found.max_model_len == 262144"
    )
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
