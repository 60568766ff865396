"""Job arrays through submitit: a dotted function over JSON files, chunked under the cluster's limits.

What is submitted is a plain module-level callable with two strings, so that no object of ours is pickled. On submitit's
signal (USR2 before the time limit, or at preemption) the task requeues itself and goes on from its journal.
"""

from __future__ import annotations

import importlib
import json
import math
import os
import shlex
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stateward.cluster.batch import environment_lines
from stateward.cluster.container import launcher, service_binds
from stateward.cluster.directives import role_directives
from stateward.cluster.profile import ClusterProfile, Role
from stateward.cluster.scheduler import ACTIVE, max_array_size, queue
from stateward.cluster.services import typesense
from stateward.errors import UserError
from stateward.store.stage import write_json

if TYPE_CHECKING:
    from submitit.core.utils import DelayedSubmission


class ShardCall:
    """Calls ``module:function`` with each of a list of JSON files; what an array task runs."""

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


def chunks(number: int, *, limit: int) -> list[range]:
    """Split `number` array tasks into arrays of at most `limit`; each is submitted with indices 0..size-1."""
    parts = max(1, math.ceil(number / limit))
    return [range(i * number // parts, (i + 1) * number // parts) for i in range(parts)]


def pack(files: Sequence[Path], tasks: int) -> list[list[str]]:
    """Deal shard files out to at most `tasks` array tasks (0: one a file), in contiguous runs."""
    tasks = min(tasks, len(files)) if tasks else len(files)
    return [[str(f) for f in files[i * len(files) // tasks : (i + 1) * len(files) // tasks]] for i in range(tasks)]


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
    """Submit `function` over `files`, unless an earlier call's jobs are still queued or running; the array job ids.

    `folder` keeps submitit's files, one log a task and attempt, and ``jobs.json`` with what was submitted. `binds`:
    folders that the tasks need, mounted where the profile has an image.
    """
    record = folder / "jobs.json"
    if record.is_file():
        jobs: list[str] = json.loads(record.read_text())["jobs"]
        if any(job.state in ACTIVE for job in queue(jobs)):
            return jobs
    import submitit
    from submitit.core.utils import FailedJobError

    directives = role_directives(profile, role)
    minutes = seconds_of(str(directives.pop("time"))) // 60
    extra = {key: value for key, value in directives.items() if value is not True}
    extra |= {"kill-on-invalid-dep": "yes", "requeue": True, "export": "ALL"}
    if dependency:
        extra["dependency"] = dependency
    groups = pack(files, profile.max_array_tasks)
    parts = chunks(len(groups), limit=max_array_size() - 1)
    at_a_time = profile.array_concurrency or len(groups)
    python = None
    if profile.container.image:
        folder.mkdir(parents=True, exist_ok=True)
        script = folder / "in-image.sh"
        script.write_text(
            launcher(profile.container, scratch=profile.scratch, binds=[folder, *binds, *service_binds(profile)])
        )
        python = f"bash {shlex.quote(str(script))}"
    submitted = []
    for number, part in enumerate(parts):
        executor = submitit.SlurmExecutor(
            folder=folder / f"chunk-{number:02d}", max_num_timeout=profile.max_restarts, python=python
        )
        executor.update_parameters(
            job_name=name,
            time=max(1, minutes),
            nodes=1,
            signal_delay_s=profile.signal_seconds,
            array_parallelism=max(1, at_a_time // len(parts)),
            # append: a task that is requeued keeps the log of its first start.
            setup=["export SLURM_OPEN_MODE=append", *environment_lines(profile), *_services_lines(profile)],
            additional_parameters={key: value for key, value in extra.items() if key != "nodes"},
            exclusive=role.exclusive or None,
            stderr_to_stdout=True,
            wckey=None,
        )
        try:
            jobs_of_part = executor.map_array(ShardCall(), [function] * len(part), [groups[i] for i in part])
        except FailedJobError as error:
            raise UserError(
                f"sbatch refused the array {name!r}: {str(error).strip()}",
                do="let your queued jobs end, or set max_array_tasks of the profile to what your limit allows"
                if "SubmitJobLimit" in str(error)
                else "mend the profile's role `sample`; python -m stateward.cluster.doctor PROFILE checks all of it",
            ) from error
        submitted.append(jobs_of_part[0].job_id.split("_")[0])
        # After every chunk, so that a call that fails half-way does not lose sight of what it submitted.
        write_json(record, {"jobs": submitted, "function": function, "files": [str(f) for f in files]})
    return submitted


def _services_lines(profile: ClusterProfile) -> list[str]:
    return [f"export {TYPESENSE}={shlex.quote(profile.typesense)}"] if profile.typesense else []


def seconds_of(time: str) -> int:
    """Seconds of Slurm's time format: ``M``, ``M:S``, ``H:M:S``, ``D-H``, ``D-H:M``, ``D-H:M:S``."""
    days, _, rest = time.rpartition("-")
    try:
        parts = [int(part) for part in rest.split(":")]
        if days:
            hours, minutes, seconds = (*parts, 0, 0)[:3]
        else:
            hours, minutes, seconds = {1: (0, parts[0], 0), 2: (0, *parts), 3: tuple(parts)}[len(parts)]
        return ((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + seconds
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"time {time!r} is not a Slurm time", do="write days-hours:minutes:seconds") from error
