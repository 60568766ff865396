"""The real jobs/probe.py, beside the stand-ins of train and merge."""

import runpy
from pathlib import Path

runpy.run_path(str(Path(__file__).parents[4] / "jobs" / "probe.py"), run_name="__main__")
