"""Job arrays through submitit: a dotted function over JSON files, chunked under the cluster's limits.

A submission is three files and one `sbatch`, for any number of tasks: `array_script` renders it with submitit, and each
task makes its own pickle on its node (`array_task`).
"""

from __future__ import annotations

import json
import math
import secrets
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stateward.cluster.batch import environment_lines
from stateward.cluster.container import launcher, service_binds
from stateward.cluster.directives import seconds_of
from stateward.cluster.profile import ClusterProfile, Role, role_directives
from stateward.cluster.scheduler import DOCTOR, largest_array, require_client, submit
from stateward.cluster.shard_call import TYPESENSE
from stateward.errors import UserError
from stateward.store.durable import write_text
from stateward.store.stage import write_json

#: What Slurm says of an array over MaxArraySize.
_TOO_LARGE = "Invalid job array specification"


def chunks(number: int, *, limit: int) -> list[range]:
    """Split `number` array tasks into arrays of at most `limit`; each is submitted with indices 0..size-1."""
    parts = max(1, math.ceil(number / limit))
    return [range(i * number // parts, (i + 1) * number // parts) for i in range(parts)]


def pack(files: Sequence[Path], tasks: int) -> list[list[str]]:
    """Deal shard files out to at most `tasks` array tasks (0: one a file), in contiguous runs."""
    names = [str(file) for file in files]
    tasks = min(tasks, len(names)) if tasks else len(names)
    return [names[i * len(names) // tasks : (i + 1) * len(names) // tasks] for i in range(tasks)]


def submit_array(
    function: str,
    files: Sequence[Path],
    *,
    profile: ClusterProfile,
    role: Role,
    folder: Path,
    name: str,
    dependency: str = "",
    binds: Sequence[Path] = (),
) -> list[str]:
    """Submit `function` over `files`; the array job ids. Whether an earlier call's jobs are queued, the caller knows.

    `folder` keeps submitit's files, one log a task and attempt, and ``jobs.json`` with what was submitted. `binds`:
    folders that the tasks need, mounted where the profile has an image.

    Raises:
        UserError: there is no Slurm here, or it refused; what was submitted before stands in ``jobs.json``.
    """
    require_client("sbatch")  # submitit would answer with a traceback
    array = _Array(
        function=function,
        tasks=pack(files, profile.max_array_tasks),
        profile=profile,
        role=role,
        folder=folder,
        name=name,
        dependency=dependency,
        python=_in_image(profile, folder, binds) if profile.container.image else None,
    )
    # Only a cluster that refuses is asked for its limit: the question costs as much as a submission.
    try:
        return array.submit([range(len(array.tasks))])
    except UserError as error:
        limit = largest_array() if _TOO_LARGE in error.what else 0
        if not 0 < limit < len(array.tasks):
            raise
    return array.submit(chunks(len(array.tasks), limit=limit))


def _in_image(profile: ClusterProfile, folder: Path, binds: Sequence[Path]) -> str:
    script = folder / "in-image.sh"
    binds = [folder, *binds, *service_binds(profile)]
    text = launcher(profile.container, scratch=profile.scratch, binds=binds)
    # A task of an earlier submission may be reading it: the shell reads a script as it goes.
    if not script.is_file() or script.read_text() != text:
        write_text(script, text)
    return f"bash {shlex.quote(str(script))}"


@dataclass(frozen=True, kw_only=True)
class _Array:
    """What is submitted, in one array or in several. `tasks`: files of each task; the rest as of `submit_array`."""

    function: str
    tasks: list[list[str]]
    profile: ClusterProfile
    role: Role
    folder: Path
    name: str
    dependency: str
    python: str | None

    def submit(self, parts: Sequence[range]) -> list[str]:
        """One array for each of `parts`, which share the limit of tasks at a time; the job ids."""
        at_a_time = max(1, (self.profile.array_concurrency or len(self.tasks)) // len(parts))
        submitted: list[str] = []
        for number, part in enumerate(parts):
            submitted.append(self._submit(self.folder / f"chunk-{number:02d}", part, at_a_time))
            # After every chunk, so that a call that fails half-way does not lose sight of what it submitted.
            write_json(self.folder / "jobs.json", {"jobs": submitted, "function": self.function})
        return submitted

    def _submit(self, folder: Path, part: range, at_a_time: int) -> str:
        from stateward.cluster.array_script import ArrayScript

        directives = role_directives(self.profile, self.role)
        minutes = max(1, seconds_of(str(directives.pop("time"))) // 60)
        folder.mkdir(parents=True, exist_ok=True)
        # A name of its own: tasks of an earlier submission may still be ending.
        array = folder / f"array-{secrets.token_hex(4)}.json"
        values = {"function": self.function, "minutes": minutes, "timeouts": self.profile.max_restarts}
        array.write_text(json.dumps({**values, "tasks": self.tasks[part.start : part.stop]}))
        script = array.with_suffix(".sh")
        text = ArrayScript(folder, array, python=self.python, **self._parameters(directives, minutes, at_a_time))
        script.write_text(text.text(len(part)))
        try:
            return submit(script)
        except UserError as error:
            script.unlink()
            array.unlink()
            if "SubmitJobLimit" in error.what:
                do = "let your queued jobs end, or set max_array_tasks of the profile to what your limit allows"
            else:
                do = f"mend the profile's role `sample`; {DOCTOR}"
            raise UserError(f"array {self.name!r}: {error.what}", error.why, do) from error

    def _parameters(self, directives: dict[str, Any], minutes: int, at_a_time: int) -> dict[str, Any]:
        # submitit writes True as a flag, as our own scripts do; `nodes` and `exclusive` it takes by name.
        exclusive = directives.pop("exclusive", None)
        # 0 is a value: --mem=0 asks for all of a node's memory.
        said = {key: value for key, value in directives.items() if value is not None and value is not False}
        extra = {key: value for key, value in said.items() if key != "nodes"}
        extra |= {"kill-on-invalid-dep": "yes", "requeue": True, "export": "ALL"}
        if self.dependency:
            extra["dependency"] = self.dependency
        typesense = self.profile.typesense
        services = [f"export {TYPESENSE}={shlex.quote(typesense)}"] if typesense else []
        return {
            "job_name": self.name,
            "time": minutes,
            "nodes": 1,
            "signal_delay_s": self.profile.signal_seconds,
            "array_parallelism": at_a_time,
            # append: a task that is requeued keeps the log of its first start.
            "setup": ["export SLURM_OPEN_MODE=append", *environment_lines(self.profile), *services],
            "additional_parameters": extra,
            "exclusive": exclusive or None,
            "stderr_to_stdout": True,
            # srun asks for one CPU by itself (Slurm 22.05), and a site may bind each task to one core; what the task
            # starts (engine, worlds) is to have all of the job's.
            "srun_args": [f"--cpus-per-task={directives['cpus-per-task']}", "--cpu-bind=none"],
            "wckey": None,
        }
