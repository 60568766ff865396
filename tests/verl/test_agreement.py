"""The check that engines and trainer compute the same policy, with engines that a test makes up."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from stateward.errors import SystemFault

pytestmark = pytest.mark.verl

torch = pytest.importorskip("torch")
pytest.importorskip("verl")

LOGPROBS = [-0.5, -1.0, -1.5]


class Trainer:
    """Two engines whose log-probs are off by `errors`, and a note of what was done to them."""

    def __init__(self, *errors: float) -> None:
        self.done: list[str] = []
        self.global_steps = 3
        self.tokenizer = _Tokenizer()
        self.llm_server_manager = SimpleNamespace(server_handles=[self._engine(error) for error in errors])
        self.checkpoint_manager = SimpleNamespace(
            sleep_replicas=lambda: self.done.append("sleep"),
            update_weights=lambda step: self.done.append(f"weights of {step}"),
        )
        self.asked: list[dict[str, Any]] = []

    def _engine(self, error: float) -> Any:
        def generate(**call: Any) -> Any:
            self.asked.append(call)
            return SimpleNamespace(token_ids=[4, 5, 6], log_probs=[p + error for p in LOGPROBS])

        return SimpleNamespace(generate=SimpleNamespace(remote=generate))


class _Tokenizer:
    all_special_ids = (0, 1)

    def __len__(self) -> int:
        return 10


@pytest.fixture(name="check")
def _check(monkeypatch: pytest.MonkeyPatch) -> Any:
    from stateward.training import agreement

    monkeypatch.setattr(agreement, "ray", SimpleNamespace(get=lambda refs: refs))
    monkeypatch.setattr(
        agreement, "_trainer_logprobs", lambda trainer, prompt, responses: [torch.tensor(LOGPROBS) for _ in responses]
    )
    return agreement.check_agreement


def test_engines_that_agree_are_left_awake_with_the_trainers_weights(check: Any) -> None:
    trainer = Trainer(0.01, -0.02)
    found = check(trainer, 0.15)
    assert found["mean_absolute"] == pytest.approx(0.02, abs=1e-6)
    assert trainer.done == ["sleep", "weights of 3"]
    prompts = [call["prompt_ids"] for call in trainer.asked]
    assert prompts[0] == prompts[1]
    assert not {0, 1} & set(prompts[0]), "special tokens could end the sequence"


@pytest.mark.parametrize("error", [0.2, -0.2, float("nan")])
def test_an_engine_that_computes_another_policy_is_named(check: Any, error: float) -> None:
    with pytest.raises(SystemFault, match=r"engine 1 and the trainer differ by .*max_logprob_difference=0\.15"):
        check(Trainer(0.0, error), 0.15)
