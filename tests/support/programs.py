"""Jobs as programs, and what they import."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
#: Packages that no `--help` and no `--dry-run` needs: each takes a good part of a second to import, or many.
HEAVY = {"torch", "ray", "verl", "vllm", "transformers", "pyarrow", "matplotlib", "mcp", "httpx"}


def run_program(name: str, *arguments: str) -> tuple[str, set[str]]:
    """What jobs/NAME.py prints as a program, and the top-level modules that it imports."""
    command = [sys.executable, "-X", "importtime", str(ROOT / "jobs" / f"{name}.py"), *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4_000:]
    imported = set(re.findall(r"^import time:.*\| +([^.\s]+)$", done.stderr, re.MULTILINE))
    assert "argparse" in imported, "the list of imports was not read"
    return done.stdout, imported
