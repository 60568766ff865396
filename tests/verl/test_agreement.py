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
    """Engines whose log-probs are off by `errors`, with a cached prompt by `cached_error` more, and a note of what was
    done to them. `context`: of the model; `cached`: tokens that the engines have of a prompt that comes again."""

    def __init__(self, *errors: float, cached_error: float = 0.0, context: int = 8192, cached: int = 2400) -> None:
        self.cached, self.cached_error = cached, cached_error
        rollout = SimpleNamespace(max_model_len=context, enable_prefix_caching=True)
        self.config = SimpleNamespace(actor_rollout_ref=SimpleNamespace(rollout=rollout))
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
            again = call["request_id"].startswith("agreement-again")
            self.asked.append(call)
            return SimpleNamespace(
                token_ids=[4, 5, 6],
                log_probs=[p + error + self.cached_error * again for p in LOGPROBS],
                extra_fields={"num_cached_tokens": self.cached if again else 0},
            )

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
    assert all(prompt == prompts[0] for prompt in prompts)
    assert len(prompts) == 4, "every engine is asked a second time, with its prefix cached"
    assert len(prompts[0]) >= 3 * 800, "several blocks of a hybrid's prefix cache"
    assert found["cached_tokens"] == 2400
    assert not {0, 1} & set(prompts[0]), "special tokens could end the sequence"


@pytest.mark.parametrize("error", [0.2, -0.2, float("nan")])
def test_an_engine_that_computes_another_policy_is_named(check: Any, error: float) -> None:
    with pytest.raises(SystemFault, match=r"engine 1 and the trainer differ by .*max_logprob_difference=0\.15"):
        check(Trainer(0.0, error), 0.15)


def test_an_engine_that_is_wrong_only_with_its_prefix_cache_is_named(check: Any) -> None:
    with pytest.raises(SystemFault, match="engine 0 with a cached prompt and the trainer differ by"):
        check(Trainer(0.0, cached_error=0.3), 0.15)


def test_an_engine_that_did_not_use_its_cache_was_not_checked(check: Any) -> None:
    with pytest.raises(SystemFault, match="engine 0 took none of 3072 prompt tokens from its prefix cache"):
        check(Trainer(0.0, cached=0), 0.15)


def test_a_context_of_less_than_a_block_has_no_cache_to_check(check: Any) -> None:
    trainer = Trainer(0.0, context=256, cached=0)
    assert check(trainer, 0.15)["cached_tokens"] == 0
    assert len(trainer.asked[0]["prompt_ids"]) == 256 - 48
