"""The error model.

Four kinds of thing go wrong, and they are never mixed up:

* A **user mistake**: a misspelt key, a file that is not there, two settings that contradict each other. It raises
  `UserError`, whose text says *what* was wrong, *why* it cannot work and what to *do*. Entry points print that text
  without a traceback and exit with status 2. Nothing has been written when it is raised.
* A **system fault**: something of ours, or below us, broke while an episode ran: a tool server died, an endpoint was
  down, a deadline of ours passed, a check crashed. It raises `SystemFault` with a `kind` from `FAULT_KINDS`. The
  episode boundary (`stateward.episode`) turns it into the outcome *void*, with the kind and the cause in the record.
  A void is never a failure of the policy, never enters a mean, and is run again.
* A **dead end**: nothing broke, and yet a stage cannot go on as things are, for instance because no group of the pool
  carries a signal any more. It raises `DeadEnd`; entry points exit with status 3, and nothing starts the stage again by
  itself, as it would only come to the same end.
* A **bug**: anything else. It propagates with its traceback. The episode boundary records it as a void of kind
  ``bug`` so that one bad task cannot end a campaign, and the stage reports it at the end and exits non-zero.

What the policy does wrong (a call to an unknown tool, arguments that do not parse) is none of the four: it is an
observation that the model sees, and the episode goes on.
"""

from __future__ import annotations

import difflib
import errno
import sys
from collections.abc import Callable, Iterable
from typing import NoReturn

#: Every kind of system fault, with what it means. The kinds appear in records, reports and `jobs/status.py`.
FAULT_KINDS: dict[str, str] = {
    "sandbox": "a world could not be opened, or its process died",
    "tool_timeout": "a tool call passed its deadline",
    "init": "the tool server's own initialisation raised",
    "sampler": "the policy's endpoint or engine failed after its retries",
    "user": "the simulated user's endpoint failed after its retries",
    "judge": "the judge's endpoint failed after its retries",
    "grader": "the check crashed, was killed or passed its time limit",
    "task": "the task contradicts its tool servers",
    "render": "the conversation could not be rendered for this checkpoint",
    "deadline": "the episode passed its wall-clock limit",
    "training": "the trainer stopped before its last step",
    "cluster": "a node, a job or a service of the allocation failed",
    "bug": "an unexpected exception inside stateward",
}


class StatewardError(Exception):
    """Base of every error that stateward raises on purpose."""


class UserError(StatewardError):
    """A mistake that the person at the keyboard can mend.

    Args:
        what: the value that was wrong, and where it stands (file and line where known).
        why: the reason it cannot work.
        do: the change that fixes it.
    """

    def __init__(self, what: str, why: str = "", do: str = "") -> None:
        self.what, self.why, self.do = what, why, do
        super().__init__(what)

    def __str__(self) -> str:
        lines = [self.what]
        if self.why:
            lines.append(f"  why: {self.why}")
        if self.do:
            lines.append(f"  do:  {self.do}")
        return "\n".join(lines)


class SystemFault(StatewardError):
    """A fault that voids an episode.

    Args:
        kind: one of `FAULT_KINDS`.
        cause: what happened, with enough detail to act on (exit status, signal, last log line).
    """

    def __init__(self, kind: str, cause: str) -> None:
        if kind not in FAULT_KINDS:
            raise ValueError(f"unknown fault kind {kind!r}; the kinds are {', '.join(FAULT_KINDS)}")
        self.kind, self.cause = kind, cause
        super().__init__(f"{kind}: {cause}")

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        return type(self), (self.kind, self.cause)


class DeadEnd(StatewardError):
    """A stage cannot go on as things are. The text says why, and what a person can change."""


#: What a disk says when it is not the program's fault, and what to do.
_DISK = {
    errno.ENOSPC: ("the disk is full", "free some space there"),
    errno.EDQUOT: ("the quota is used up", "remove files of yours there, or ask for more (`quota`, `lfs quota`)"),
    errno.EROFS: ("the file system is read-only", "use a folder that can be written to"),
    errno.EIO: ("the disk failed", "look at the node's file system, and use another node or folder"),
}


def disk_error(error: BaseException) -> UserError | None:
    """One sentence with the remedy, if `error` (or what it groups or was raised from) is a full or a failing disk."""
    if isinstance(error, BaseExceptionGroup):
        return next((found for inner in error.exceptions if (found := disk_error(inner))), None)
    if isinstance(error, OSError) and error.errno in _DISK:
        what, do = _DISK[error.errno]
        where = f"{error.filename}: " if error.filename else ""
        return UserError(
            f"{where}{what}", "nothing that was stored before is lost", f"{do}, and call this again: it continues"
        )
    return disk_error(error.__cause__) if error.__cause__ else None


def program(main: Callable[[], int]) -> NoReturn:
    """Run a program of its own: ends with the status of `main`, or with 2 and the text of the user's mistake."""
    try:
        sys.exit(main())
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except Exception as error:
        if (full := disk_error(error)) is None:
            raise
        print(f"error: {full}", file=sys.stderr)
        sys.exit(2)


def nearest(wrong: str, valid: Iterable[str]) -> str:
    """A ready-made `do` for a misspelt name: the nearest valid name, or all of them."""
    names = sorted(valid)
    close = difflib.get_close_matches(wrong, names, n=1)
    if close:
        return f"did you mean {close[0]!r}? valid: {', '.join(names)}"
    return f"valid: {', '.join(names)}" if names else "there are no valid names here"
