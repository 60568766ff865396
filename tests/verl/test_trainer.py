"""The trainer around Verl's: what it does where Verl's would wait for ever."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

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
