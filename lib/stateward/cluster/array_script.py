"""The batch script of an array, as submitit renders it; what it starts on the nodes is `array_task`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import submitit


class ArrayScript(submitit.SlurmExecutor):  # type: ignore[misc]
    """submitit's executor for the script alone: it neither pickles nor submits, and holds no object a task.

    Args:
        folder: of submitit's files and logs, one log a task and attempt.
        array: the array's JSON file, which the tasks read.
        python: shell words that start Python on the nodes; None: this interpreter.
        parameters: of submitit's `update_parameters`.
    """

    def __init__(self, folder: Path, array: Path, *, python: str | None, **parameters: Any) -> None:
        super().__init__(folder, python=python)
        self.array = array
        self.update_parameters(**parameters)

    @property
    def _submitit_command_str(self) -> str:
        arguments = shlex.join([str(self.folder), str(self.array)])
        return f"{self.python} -u -m stateward.cluster.array_task {arguments}"

    def text(self, tasks: int) -> str:
        """The script of an array with indices 0 to `tasks` - 1."""
        self.parameters["map_count"] = tasks
        return str(self._make_submission_file_text(self._submitit_command_str, uid=""))
