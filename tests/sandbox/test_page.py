"""The example of docs/tool_servers.md, taken from the page as it stands, prints what the page says."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

PAGE = (Path(__file__).parents[2] / "docs" / "tool_servers.md").read_text()
FILE = re.compile(r"^`(kiosk/[\w./]+)`:\n\n((?:    .*\n|\n)+)", re.MULTILINE)
COMMAND = re.compile(r"^    \$ python (-m stateward.sandbox.play .*)\n((?:    .*\n)+)", re.MULTILINE)


def test_the_example(tmp_path: Path) -> None:
    files = {name: textwrap.dedent(body) for name, body in FILE.findall(PAGE)}
    assert len(files) == 7
    for name, body in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(body)
    ((arguments, shown),) = COMMAND.findall(PAGE)
    command = [sys.executable, *arguments.split()]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.stdout == textwrap.dedent(shown)
    assert (result.returncode, result.stderr) == (0, "")
    # A task that nobody solves, and one that passes by itself, are told.
    calls = tmp_path / "kiosk" / "calls.yaml"
    calls.write_text(calls.read_text().replace("number: 2", "number: 1"))
    assert subprocess.run(command, cwd=tmp_path, capture_output=True, check=False).returncode == 1
    calls.write_text("kiosk.py:test_sell_two_apples: [{sell: 3}]\n")
    wrong = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert wrong.returncode == 2
    assert "kiosk/calls.yaml:1: 3 is not what sell takes" in wrong.stderr
