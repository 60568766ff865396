"""The idle meter on a made-up library, and the runs of several seeds."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from stateward.config import load_config
from stateward.errors import UserError
from stateward.training.devices import IdleMeter
from stateward.training.seeds import seed_runs

PRACTICE = Path(__file__).parents[2] / "configs" / "practice.yaml"


class Nvml:
    """Two devices with utilisations that a test sets."""

    def __init__(self) -> None:
        self.busy = [0, 0]

    def nvmlDeviceGetCount(self) -> int:
        return len(self.busy)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> SimpleNamespace:
        return SimpleNamespace(gpu=self.busy[handle])


def test_idle_share() -> None:
    nvml = Nvml()
    meter = IdleMeter(nvml, every_seconds=3600)
    for busy in ([0, 100], [2, 97], [50, 5]):
        nvml.busy = busy
        meter.sample()
    assert meter.take() == (2, 6)
    assert meter.take() == (0, 0)


def test_no_device_measures_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stateward.training.devices._load_nvml", lambda: None)
    assert IdleMeter().take() == (0, 0)


def test_one_seed_is_the_campaign_itself() -> None:
    config = load_config(PRACTICE, ["run_dir=/r"])
    (run,) = seed_runs(config, 1)
    assert (run.label, run.config, run.run_dir) == ("tuned", config, Path("/r"))


def test_several_seeds_differ_in_the_seed_alone() -> None:
    config = load_config(PRACTICE, ["run_dir=/r", "train.seed=10"])
    runs = list(seed_runs(config, 3))
    assert [run.label for run in runs] == ["tuned-seed1", "tuned-seed2", "tuned-seed3"]
    assert [run.config.train.seed for run in runs] == [11, 12, 13]
    assert [str(run.run_dir) for run in runs] == ["/r/seeds/1", "/r/seeds/2", "/r/seeds/3"]
    assert config.train.seed == 10
    for run in runs:
        run.config.train.seed = 10
        assert run.config == config


def test_no_seed_is_refused() -> None:
    with pytest.raises(UserError):
        list(seed_runs(load_config(PRACTICE), 0))
