"""What identifies a policy, and at which tokens its turns end."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

import pytest

from stateward.errors import UserError
from stateward.policy import load_tokenizer, policy_fingerprint, stop_tokens

PARSERS = ("qwen3_xml", "qwen3")


@pytest.fixture
def checkpoint(qwen: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "model"
    qwen.tokenizer().save_pretrained(folder)
    (folder / "config.json").write_text('{"model_type": "qwen3", "eos_token_id": 7}')
    (folder / "model-00001-of-00002.safetensors").write_bytes(b"one")
    (folder / "model-00002-of-00002.safetensors").write_bytes(b"two")
    return folder


def test_everything_that_matters_changes_the_fingerprint(checkpoint: Path) -> None:
    seen = {policy_fingerprint(checkpoint, PARSERS)}

    def differs(found: str) -> None:
        assert found not in seen
        seen.add(found)

    differs(policy_fingerprint(checkpoint, ("hermes", "qwen3")))
    differs(policy_fingerprint(checkpoint, ("qwen3_xml", None)))
    differs(policy_fingerprint(checkpoint, PARSERS, {"enable_thinking": False}))
    for name in ("chat_template.jinja", "tokenizer.json", "config.json", "model-00002-of-00002.safetensors"):
        path = checkpoint / name
        path.write_bytes(path.read_bytes() + b" ")
        differs(policy_fingerprint(checkpoint, PARSERS))
    (checkpoint / "generation_config.json").write_text("{}")
    differs(policy_fingerprint(checkpoint, PARSERS))


def test_nothing_else_does(checkpoint: Path, tmp_path: Path) -> None:
    before = policy_fingerprint(checkpoint, PARSERS)
    (checkpoint / "README.md").write_text("notes")
    moved = checkpoint.rename(tmp_path / "elsewhere")
    assert policy_fingerprint(moved, list(PARSERS)) == before
    assert len(before) == 16


def test_swapped_weights_are_another_policy(checkpoint: Path) -> None:
    before = policy_fingerprint(checkpoint, PARSERS)
    first, second = sorted(checkpoint.glob("*.safetensors"))
    one, two = first.read_bytes(), second.read_bytes()
    first.write_bytes(two)
    second.write_bytes(one)
    assert policy_fingerprint(checkpoint, PARSERS) != before


def test_stop_tokens_follow_the_checkpoint(checkpoint: Path) -> None:
    own = load_tokenizer(checkpoint).eos_token_id
    assert stop_tokens(load_tokenizer(checkpoint)) == tuple(sorted({own, 7}))
    (checkpoint / "generation_config.json").write_text(json.dumps({"eos_token_id": [own, 3]}))
    assert stop_tokens(load_tokenizer(checkpoint)) == tuple(sorted({own, 3}))
    (checkpoint / "generation_config.json").write_text("{}")
    assert stop_tokens(load_tokenizer(checkpoint)) == (own,)


def test_nested_end_tokens_are_found(checkpoint: Path) -> None:
    (checkpoint / "config.json").write_text(json.dumps({"model_type": "qwen3", "text_config": {"eos_token_id": 9}}))
    assert 9 in stop_tokens(load_tokenizer(checkpoint))


def test_folders_without_a_checkpoint_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not a checkpoint directory"):
        load_tokenizer(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UserError, match="holds no weights"):
        policy_fingerprint(tmp_path, PARSERS)
