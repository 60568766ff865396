"""A running grader, and checks written in a line."""

from __future__ import annotations

import asyncio
import textwrap
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import pytest_asyncio

from stateward.grading import Evidence, Grade, GradeLimits, Grader
from stateward.outcome import Usage
from stateward.tasks import Check, FixtureSpec

HEAD = "from thinkingbox.common import Judge, RubricJudge, TestContext\n"


def check(
    body: str, *, parameters: str = "x, judge", head: str = HEAD, fixtures: dict[str, Any] | None = None
) -> Check:
    """A check whose function has this body; the body's first line is line 3."""
    source = f"{head}def test_it({parameters}):\n{textwrap.indent(textwrap.dedent(body), '    ')}\n"
    specs = tuple(
        FixtureSpec(name=name, type=kind, parameters=values) for name, (kind, values) in (fixtures or {}).items()
    )
    return Check(file="test_case/case.py", function="test_it", source=source, fixtures=specs)


@dataclass
class Turn:
    text: str


@dataclass
class Sample:
    turn: Turn | None
    usage: Usage
    finish: str = "stop"


@dataclass
class FakeJudge:
    """Answers by a function of the conversation; remembers what it was asked and how many at a time."""

    answer: Callable[[list[dict[str, Any]]], str | Awaitable[str]] = lambda _: "Yes"
    asked: list[list[dict[str, Any]]] = field(default_factory=list)
    now: int = 0
    most: int = 0

    async def chat(self, messages: Any, *, tools: Any = None, max_tokens: int, seed: int) -> Sample:
        self.asked.append(messages)
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await asyncio.sleep(0)  # lets questions that were asked at once arrive at once
            text = self.answer(messages)
            text = text if isinstance(text, str) else await text
        finally:
            self.now -= 1
        return Sample(Turn(text), Usage(requests=1, prompt=10, completion=1))


Run = Callable[..., Awaitable[Grade]]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def grader() -> AsyncIterator[Grader]:
    """One warm grader for all tests of a module: whatever a check does, the next is graded as ever."""
    async with Grader(GradeLimits(memory_mb=256)) as started:
        yield started


@pytest.fixture
def run(grader: Grader) -> Run:
    async def go(
        body: str,
        *,
        evidence: Evidence | None = None,
        judge: FakeJudge | None = None,
        deadline: float = 20,
        **options: Any,
    ) -> Grade:
        grader.judge = judge
        grader.limits = replace(grader.limits, deadline_seconds=deadline)
        return await grader.grade(check(body, **options), evidence or Evidence())

    return go
