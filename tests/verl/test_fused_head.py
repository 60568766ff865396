"""The LM head's gradient under Verl's fused loss, on two ranks against one process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from stateward.training.plan import CPU_ENVIRONMENT

pytestmark = pytest.mark.verl

pytest.importorskip("verl")
SCRIPT = Path(__file__).parent / "fused_head.py"
HEAD = "lm_head.weight"


def test_every_gradient_is_that_of_one_process(tmp_path: Path) -> None:
    env = {**os.environ, **CPU_ENVIRONMENT, "VERL_USE_EXTERNAL_MODULES": "stateward.training.verl_plugin"}
    ranks = [
        subprocess.Popen(
            [sys.executable, str(SCRIPT), str(tmp_path), str(rank), "2"],
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    told = [rank.communicate()[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], "\n".join(told)
    for rank in range(2):
        report = json.loads((tmp_path / f"{rank}.json").read_text())
        for name in ("qwen3_5", "qwen3_vl"):
            assert max(report[name].values()) < 1e-5
            # Verl's own: each rank keeps its part of its own gradient, whose error is of the gradient's size.
            alone = report[f"{name} of Verl"]
            assert alone.pop(HEAD) > 0.5
            assert max(alone.values()) < 1e-5
