"""A dataset on disk, written from short texts."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path

import pytest

from stateward.tasks import Task, load_tasks

AGENT = """
system_instructions: 'You are an agent. Say {"status": "ok"} when done.'
builtin_tools:
- name: report
  description: Report something.
  is_end_turn: true
  input_schema: {type: object, properties: {reason: {type: string}}}
"""
SCENARIO = """
world_state:
  shop:
    orders: [{id: 1, status: open}]
    rules: {limit: 100, currency: EUR}
tools:
- name: get_order
- name: hand_over
  is_end_turn: true
bot_instructions: Be brief.
tags: [domain:Retail, base]
"""
SERVERS = """
use_internal_servers: false
servers:
  shop:
    type: mcp-process
    command: ["{python}", "-m", "shop_server"]
    env: {MODE: test}
"""
TESTS = '''
from thinkingbox.common import Judge, TestContext

"""!
scenario: shop
tags: [module-tag]
"""


def status(x, number):
    return [o["status"] for o in x.effects["shop"]["orders"] if o["id"] == number]


def test_cancel(x: TestContext, judge: Judge):
    """!
    query: Cancel order 1.
    user_context: You are Ann.
    """
    assert status(x, 1) == ["cancelled"]


def test_keep(x):
    """!
    query: What is the status of order 1?
    """
    assert status(x, 1) == ["open"]
'''


class DatasetFolder:
    """Writes and loads one dataset."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.write("agent/default.yaml", AGENT)
        self.write("scenario/shop.yaml", SCENARIO)
        self.write("servers.yaml", SERVERS)
        self.write("test_case/shop.py", TESTS)

    def write(self, name: str, text: str) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text).lstrip("\n"), encoding="utf-8")
        return path

    def test(self, yaml: str, body: str = "pass", parameters: str = "x") -> None:
        """One test, ``case.py:test_it``, with this YAML."""
        indented = textwrap.indent(textwrap.dedent(yaml).strip("\n"), "    ")
        self.write("test_case/case.py", f'def test_it({parameters}):\n    """!\n{indented}\n    """\n    {body}\n')

    def load(self, selectors: Sequence[str] | Path = ("shop.py:test_cancel",), **options: object) -> list[Task]:
        return load_tasks(self.root, selectors, **options)  # type: ignore[arg-type]

    def one(self, selector: str = "case.py:test_it") -> Task:
        (task,) = self.load([selector])
        return task


@pytest.fixture
def dataset(tmp_path: Path) -> DatasetFolder:
    return DatasetFolder(tmp_path / "data set")
