"""The real jobs/report.py, beside the stand-ins of train and merge."""

import runpy
from pathlib import Path

runpy.run_path(str(Path(__file__).parents[4] / "jobs" / "report.py"), run_name="__main__")
