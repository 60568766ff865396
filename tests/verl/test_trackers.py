"""The figures of a step through Verl's own trackers, which `train.trackers` names."""

from __future__ import annotations

from pathlib import Path

import pytest

from stateward.config import load_config
from stateward.training import figures
from stateward.training.plan import plan_training, worker_environment

pytestmark = pytest.mark.verl

pytest.importorskip("verl")

PRACTICE = Path(__file__).parents[2] / "configs" / "practice.yaml"
LINE = {
    "step": 3,
    "time": 1.0,
    "pass_rate": 0.5,
    "passes_histogram": [1, 0, 2],
    "seconds": {"sample": 2.0},
    "voids": {},
}


def test_trackers_are_off_by_default() -> None:
    plan = plan_training(load_config(PRACTICE), "/r", Path("/m"))
    assert "trainer.logger=[]" in [override.render() for override in plan.overrides]


def test_tensorboard_has_the_figures_in_the_run_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from verl.utils.tracking import Tracking

    config = load_config(PRACTICE, ["train.trackers=[tensorboard]"])
    plan = plan_training(config, tmp_path, Path("/m"))
    assert "trainer.logger=[tensorboard]" in [override.render() for override in plan.overrides]
    for name, value in worker_environment(config, plan.paths).items():
        if name == "TENSORBOARD_DIR":
            monkeypatch.setenv(name, value)
    tracking = Tracking("stateward", config.name, default_backend=config.train.trackers, config={})
    tracking.log(data=figures.flat(LINE), step=3)
    tracking.logger["tensorboard"].finish()
    folder = tmp_path / "train" / "tensorboard"
    found = EventAccumulator(str(folder))
    found.Reload()
    assert set(found.Tags()["scalars"]) == set(figures.flat(LINE))
    event = found.Scalars("stateward/seconds/sample")[0]
    assert (event.step, event.value) == (3, 2.0)
    assert found.Scalars("stateward/groups_with_2_passes")[0].value == 2.0
