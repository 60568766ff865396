"""The trainer around Verl's: what it does where Verl's would wait for ever."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from stateward.errors import SystemFault

pytestmark = pytest.mark.verl

pytest.importorskip("torch")
pytest.importorskip("verl")

STANDS_STILL = """
import sys, threading
from pathlib import Path
from types import SimpleNamespace
from stateward.errors import SystemFault
from stateward.training import trainer as module
from stateward.training.paths import TrainPaths

module.PPOTrainerSync.init = lambda self: threading.Event().wait()
module.stacks.request_everywhere = lambda hosts, logs: f"asked {hosts} and {logs}"
trainer = object.__new__(module.EpisodeTrainer)
trainer.ours = SimpleNamespace(train=SimpleNamespace(watchdog_minutes=0.005))
trainer.paths = TrainPaths.of(Path(sys.argv[1]))
trainer.hosts = ["a host"]
try:
    trainer.init()
except SystemFault as fault:
    print(fault)
"""


def test_a_start_that_stands_still_is_ended(tmp_path: Path, in_a_worker: Any) -> None:
    """As when an engine fails while it loads its first weights, and the process that sends them waits for it."""
    done = in_a_worker(STANDS_STILL, str(tmp_path))
    assert done.returncode == 0, done.stderr[-2000:]
    # The devices are on other nodes than the driver may be.
    assert done.stdout.splitlines()[-1] == (
        "training: nothing was finished for 0.005 minutes; the trainer and its engines were starting; "
        f"asked ['a host'] and {tmp_path / 'train' / 'logs'}"
    )


def test_what_the_start_took_is_in_no_steps_idle_share(monkeypatch: pytest.MonkeyPatch) -> None:
    from stateward.training import trainer as module

    told: list[str] = []
    monkeypatch.setattr(module, "check_agreement", lambda trainer, limit: told.append("agreement") or {})
    monkeypatch.setattr(module.PPOTrainerSync, "fit", lambda self, manager: told.append("steps"))
    trainer: Any = object.__new__(module.EpisodeTrainer)
    trainer.ours = SimpleNamespace(train=SimpleNamespace(max_logprob_difference=1.0))
    trainer.replay_buffer = SimpleNamespace()
    trainer.watchdog = nullcontext()
    trainer.fit(SimpleNamespace(device_idle_share=lambda: told.append("idle share was taken")))
    assert told == ["agreement", "idle share was taken", "steps"]


def step_of(difference: float, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A trainer in a step of four sampled tokens, whose log-probs differ by `difference` from the engines'."""
    import torch

    from stateward.training import trainer as module

    def jagged(*rows: list[float]) -> Any:
        return torch.nested.as_nested_tensor([torch.tensor(row) for row in rows], layout=torch.jagged)

    data = {
        "rollout_log_probs": jagged([-1.0, -1.0, 9.0], [-2.0, -2.0]),
        "old_log_probs": jagged([-1.0 + difference, -1.0 - difference, -9.0], [-2.0 + difference, -2.0 - difference]),
        "response_mask": jagged([1, 1, 0], [1, 1]),  # the third token is a tool's
    }
    monkeypatch.setattr(module.transfer_queue, "kv_batch_get", lambda **_: data)
    monkeypatch.setattr(module.PPOTrainerSync, "_compute_old_log_prob", lambda self, batch, metrics: batch)
    trainer: Any = object.__new__(module.EpisodeTrainer)
    trainer.ours = SimpleNamespace(train=SimpleNamespace(max_logprob_difference=0.15))
    trainer.global_steps = 7
    return trainer


def test_a_step_of_another_policys_episodes_is_not_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = SimpleNamespace(keys=[], partition_id="p")
    trainer = step_of(0.1, monkeypatch)
    assert trainer._compute_old_log_prob(batch, {}) is batch
    assert trainer._logprobs["mean_absolute"] == pytest.approx(0.1)
    with pytest.raises(SystemFault, match=r"step 7, which was not trained: .* 0\.200 nats per token, more than"):
        step_of(0.2, monkeypatch)._compute_old_log_prob(batch, {})
