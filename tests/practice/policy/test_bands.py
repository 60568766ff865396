"""The shipped policy is neither hopeless nor perfect: its tasks lie in all five bands of difficulty."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from stateward.config import BandConfig
from stateward.difficulty.bands import Bands
from stateward.difficulty.posterior import band_index
from stateward.store import read_records

pytestmark = [pytest.mark.engines, pytest.mark.timeout(1800)]

ROOT = Path(__file__).parents[3]


def test_the_training_tasks_spread_over_all_bands(tmp_path: Path) -> None:
    command = [
        *(sys.executable, str(ROOT / "jobs" / "probe.py"), "--config", str(ROOT / "configs" / "practice.yaml")),
        *("--run-dir", str(tmp_path / "run"), "probe.stop=fixed"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=1700)
    assert done.returncode == 0, done.stderr[-3000:]
    passes: dict[str, list[bool]] = {}
    for record in read_records(tmp_path / "run" / "probe"):
        passes.setdefault(record.trial.uid, []).append(record.outcome.value == "pass")
    assert set(map(len, passes.values())) == {8}
    bands = Bands.from_config(BandConfig())
    found = Counter(bands.names[int(band_index(sum(p), len(p), bands))] for p in passes.values())
    assert set(found) == set(bands.names), dict(found)
