"""A checkpoint is opened whole, or refused for what does not go together."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from stateward.config import PolicyConfig
from stateward.errors import UserError
from stateward.policy import fingerprint_of, open_policy, policy_fingerprint


@pytest.fixture
def model(qwen: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "model"
    qwen.tokenizer("qwen38").save_pretrained(folder)
    (folder / "config.json").write_text('{"model_type": "qwen3"}')
    (folder / "model.safetensors").write_bytes(b"weights")
    return folder


@pytest.mark.timeout(900)
@pytest.mark.slow  # importing vLLM takes seconds
def test_settings_of_the_template_reach_renderer_and_interpreter(model: Path) -> None:
    opened = open_policy(model, PolicyConfig(model="", template={"reasoning_effort": "low"}))
    prompt = opened.renderer.start([{"role": "user", "content": "hi"}], []).ids
    assert "reasoning effort is low" in opened.tokenizer.decode(prompt)
    assert opened.interpreter.thinks
    opened = open_policy(model, PolicyConfig(model="", template={"enable_thinking": False}))
    assert not opened.interpreter.thinks


@pytest.mark.timeout(900)
@pytest.mark.slow
def test_what_does_not_go_together_is_refused(model: Path) -> None:
    with pytest.raises(UserError, match="did not come back from the parsers"):
        open_policy(model, PolicyConfig(model="", tool_parser="hermes"))
    with pytest.raises(UserError, match="Unexpected reasoning effort"):
        open_policy(model, PolicyConfig(model="", template={"reasoning_effort": "high"}))


def test_fingerprint_follows_the_configuration(model: Path) -> None:
    plain = fingerprint_of(model, PolicyConfig(model="x"))
    assert plain == policy_fingerprint(model, ("qwen3_xml", "qwen3"))
    changes = [{"tool_parser": "hermes"}, {"reasoning_parser": ""}, {"template": {"reasoning_effort": "low"}}]
    others = {fingerprint_of(model, PolicyConfig(model="x", **change)) for change in changes}
    assert len(others | {plain}) == 4


def test_importing_the_room_loads_no_engine() -> None:
    code = (
        "import sys, stateward.policy, stateward.policy.preflight, stateward.policy.samplers.vllm, "
        "stateward.cluster.services.vllm\n"
        "print([m for m in ('torch', 'vllm', 'transformers', 'tokenizers', 'ray', 'jinja2') if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
