"""Difficulty for one policy: posterior, bands, curtailed probing, pool selection, contamination guard, drift.

Matplotlib and datasketch are imported where they are needed, so that a probe's workers and `--help` stay light.
"""

from stateward.difficulty.bands import PROFILES, Bands
from stateward.difficulty.stopping import StopRule, build_rule, stop_rule

__all__ = ["PROFILES", "Bands", "StopRule", "build_rule", "stop_rule"]
