"""The real jobs/curate.py, beside the stand-ins of train and merge."""

import runpy
from pathlib import Path

runpy.run_path(str(Path(__file__).parents[4] / "jobs" / "curate.py"), run_name="__main__")
