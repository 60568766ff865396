"""What identifies a task's content, for comparing two sets of tasks: digests that anyone can recompute."""

from __future__ import annotations

import ast
import functools
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
        world: of the initial world state.
        text: of the normalised query and what the simulated user knows; `shingles` are those of this text.
    """

    uid: str
    query: str
    world: str
    text: str
    shingles: frozenset[str]
    _check: Check

    @classmethod
    def of(cls, task: Task) -> TaskPrint:
        query = normalised(task.query)
        text = f"{query} {normalised(task.user_context)}".strip()
        world = [[server.name, task.world.get(server.name)] for server in task.servers]
        return cls(
            uid=task.uid,
            query=_sha(query) if query else "",
            world=fingerprint(world or task.world),
            text=_sha(text),
            shingles=shingles(text),
            _check=task.check,
        )

    @functools.cached_property
    def check(self) -> str:
        """Digest of the check. Parsing every check would cost more than all the rest, and only equal worlds need it."""
        return _sha(normalised_check(self._check))

    def to_json(self, *, with_check: bool) -> dict[str, str]:
        """uid and digests."""
        out = {"uid": self.uid, "query": self.query, "world": self.world, "text": self.text}
        return {**out, "check": self.check} if with_check else out


def normalised(text: str) -> str:
    """Words alone, in NFKC and folded case: punctuation, spacing, width and capitals make no difference."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    return " ".join(_WORDS.findall(folded)) or folded.strip()


def shingles(text: str) -> frozenset[str]:
    """The runs of `SHINGLE` words of a normalised text; the whole text where it is shorter."""
    words = text.split()
    if len(words) < SHINGLE:
        return frozenset([text] if text else [])
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
