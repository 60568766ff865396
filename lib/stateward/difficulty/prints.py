"""What identifies a task's content, for comparing two sets of tasks: digests that anyone can recompute."""

from __future__ import annotations

import ast
import hashlib
import re
import unicodedata
from dataclasses import dataclass

from stateward.outcome import fingerprint
from stateward.tasks.task import Check, Task

SHINGLE = 3  # words

_WORDS = re.compile(r"\w+")


@dataclass(frozen=True)
class TaskPrint:
    """Digests of one task.

    Attributes:
        query: SHA-256 of the normalised query; empty if there is none.
        start: of the initial world state and the check together.
        shingles: of the query and of what the simulated user knows.
    """

    uid: str
    query: str
    start: str
    shingles: frozenset[str]

    @classmethod
    def of(cls, task: Task) -> TaskPrint:
        query = normalised(task.query)
        world = [[server.name, task.world.get(server.name)] for server in task.servers]
        if not world:
            world = [list(item) for item in sorted(task.world.items())]
        return cls(
            uid=task.uid,
            query=_sha(query) if query else "",
            start=fingerprint([world, normalised_check(task.check)]),
            shingles=shingles(f"{task.query}\n{task.user_context}"),
        )

    def to_json(self) -> dict[str, str]:
        """uid and digests; `text` is that of the sorted shingles."""
        return {
            "uid": self.uid,
            "query": self.query,
            "start": self.start,
            "text": _sha("\n".join(sorted(self.shingles))),
        }


def normalised(text: str) -> str:
    """Words alone, in NFKC and folded case: punctuation, spacing, width and capitals make no difference."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    return " ".join(_WORDS.findall(folded)) or folded.strip()


def shingles(text: str) -> frozenset[str]:
    """The runs of `SHINGLE` words of the normalised text; the whole text where it is shorter."""
    words = normalised(text).split()
    if len(words) < SHINGLE:
        return frozenset([" ".join(words)] if words else [])
    return frozenset(map(" ".join, zip(*(words[i:] for i in range(SHINGLE)), strict=False)))


def normalised_check(check: Check) -> str:
    """The check's code without its name, comments, layout and free-standing texts.

    In the task format those texts hold the query and other settings; two tests that differ in them alone grade alike.
    """
    try:
        tree = ast.parse(check.source)
    except (SyntaxError, ValueError):
        return check.source
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == check.function:
            node.name = "check"
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [s for s in body if not _free_text(s)]  # type: ignore[attr-defined]
    return ast.dump(tree)


def _free_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
