"""What an array task runs: a dotted function over some JSON files, and what the task serves itself meanwhile.

A plain module-level callable with strings as its arguments, so that no object of ours is pickled. On submitit's signal
(USR2 before the time limit, or at preemption) the task requeues itself and goes on from its journal.
"""

from __future__ import annotations

import importlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stateward.cluster.services import typesense
from stateward.errors import UserError

if TYPE_CHECKING:
    from submitit.core.utils import DelayedSubmission


class ShardCall:
    """Calls ``module:function`` with each of a list of JSON files."""

    def __call__(self, function: str, files: list[str]) -> None:
        target = resolve(function)
        with _own_services():
            for file in files:
                target(file)

    def checkpoint(self, function: str, files: list[str]) -> DelayedSubmission:
        """Called by submitit at its signal: the same call again; its journal says what is left to do."""
        from submitit.core.utils import DelayedSubmission

        return DelayedSubmission(self, function, files)


#: Environment variable of an array task: binary of the Typesense that it starts for itself.
TYPESENSE = "STATEWARD_TYPESENSE"


@contextmanager
def _own_services() -> Iterator[None]:
    """What the profile says an array task serves itself; tool servers find it in their environment."""
    binary = os.environ.get(TYPESENSE, "")
    if not binary:
        yield
        return
    with (
        tempfile.TemporaryDirectory(prefix="sw-services-") as folder,
        typesense.serve(Path(folder), log=Path(folder) / "typesense.log", binary=binary) as server,
    ):
        os.environ |= server.environment()
        yield


def resolve(function: str) -> Any:
    """The callable that ``module:function`` names."""
    module, _, name = function.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise UserError(f"{function!r} is not a function", str(error), "write module:function") from error
