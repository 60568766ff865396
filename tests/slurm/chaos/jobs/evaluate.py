"""The real jobs/evaluate.py, beside the stand-ins of train and merge."""

import runpy
from pathlib import Path

runpy.run_path(str(Path(__file__).parents[4] / "jobs" / "evaluate.py"), run_name="__main__")
