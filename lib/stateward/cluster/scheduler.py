"""The few questions that are put to Slurm, each with a constant number of controller calls.

What Slurm says is a hint: a job's markers and journals on disk are the truth about what it did.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from stateward.cluster.submission_environment import job_environment
from stateward.errors import UserError

#: States in which a job still may run or runs.
ACTIVE = frozenset(
    {"PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "SUSPENDED", "REQUEUED", "RESIZING", "STAGE_OUT"}
)


#: The folder that holds jobs/.
CHECKOUT = Path(__file__).parents[3]
DOCTOR = "python -m stateward.cluster.doctor PROFILE checks a profile on this cluster"
#: For a machine with Slurm's programs whose cluster they do not find.
FIND_SLURM = "call this on a login node, or let SLURM_CONF name the cluster's slurm.conf"
_NO_CONFIGURATION = "configuration source"


@dataclass(frozen=True, kw_only=True)
class QueuedJob:
    """One line of the queue. `job` is the id as a person types it: ``12``, ``12_3``, ``12+1``."""

    job: str
    state: str
    reason: str
    name: str


def require_client(name: str, env: Mapping[str, str] | None = None) -> None:
    """Raises UserError if there is no Slurm client `name` on the PATH of `env`, or of this process."""
    if shutil.which(name, path=None if env is None else env.get("PATH")) is None:
        raise UserError(f"{name} is not on PATH", "there is no Slurm here", "call this on a login node")


def require_cluster() -> None:
    """To be called before anything is written for a submission.

    Raises:
        UserError: there is no Slurm here, its programs find no cluster, or the controller does not answer.
    """
    require_client("sbatch")
    run_client("squeue", "--noheader", "--me", "--format=%i")  # waits for a controller as sbatch does


def run_client(*command: str, env: Mapping[str, str] | None = None) -> str:
    """Output of a Slurm client.

    Raises:
        UserError: the client is not installed, or refused; the text is Slurm's own.
    """
    require_client(command[0], env)
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=None if env is None else dict(env))
    if done.returncode:
        said = (done.stderr or done.stdout).strip()
        do = FIND_SLURM if _NO_CONFIGURATION in said else ""
        raise UserError(f"{command[0]} refused: {said}", f"it was called as {' '.join(command)}", do)
    return done.stdout


def try_client(*command: str, env: Mapping[str, str] | None = None) -> tuple[int, str]:
    """Exit status of a Slurm client and what it said, on either stream."""
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, env=env)
    return done.returncode, done.stdout + done.stderr


def submit(script: Path) -> str:
    """Hand a batch script to sbatch; the id of the job, or of a heterogeneous job's first component.

    The job finds `job_environment`, and starts in the checkout wherever this was called: a profile's `setup` may name
    something there.
    """
    answer = run_client("sbatch", "--parsable", f"--chdir={CHECKOUT}", str(script), env=job_environment())
    return answer.strip().split(";")[0]


def submit_text(script: str, more: Mapping[str, str]) -> str:
    """`submit` for a script that is no file: Slurm keeps it as the job's own, and names it by its job name. `more`:
    variables for the job."""
    env = {**job_environment(), **more}
    require_client("sbatch", env)
    command = ["sbatch", "--parsable", f"--chdir={CHECKOUT}"]
    done = subprocess.run(command, input=script, capture_output=True, text=True, check=False, env=env)
    if done.returncode:
        said = (done.stderr or done.stdout).strip()
        raise UserError(f"sbatch refused: {said}", do=FIND_SLURM if _NO_CONFIGURATION in said else DOCTOR)
    return done.stdout.strip().split(";")[0]


def cancel(jobs: Iterable[str]) -> None:
    """Cancel these jobs; those that have ended meanwhile are no error. One controller call a job, as scancel does."""
    try_client("scancel", *jobs)


def queue(jobs: Iterable[str]) -> list[QueuedJob]:
    """What of these jobs is in the queue, array tasks listed one by one. One controller call.

    Jobs that Slurm has forgotten are absent; that says nothing about how they ended.
    """
    ids = ",".join(sorted({job.split("_")[0].split("+")[0] for job in jobs}))
    if not ids:
        return []
    done = subprocess.run(
        ["squeue", "--noheader", "--array", "--jobs", ids, "--format", "%i|%T|%r|%j"],
        capture_output=True,
        text=True,
        check=False,
    )
    # squeue refuses when it has forgotten every job that it is asked for.
    if done.returncode and "Invalid job id" not in done.stderr:
        raise UserError(f"squeue refused: {done.stderr.strip()}")
    out = []
    for line in done.stdout.splitlines():
        job, state, reason, name = line.split("|", 3)
        out.append(QueuedJob(job=job, state=state, reason=reason, name=name))
    return out


def queue_or_none(jobs: Iterable[str]) -> list[QueuedJob] | None:
    """`queue`, or None where there is no squeue or its controller does not answer."""
    if shutil.which("squeue") is None:
        return None
    try:
        return queue(jobs)
    except UserError:
        return None


def accounted(jobs: Iterable[str]) -> dict[str, str] | None:
    """Job or array task → state by accounting, one call; None where accounting is off, not installed or down.

    A hint: it lags by seconds, and a site may keep only some weeks. ``CANCELLED by 0`` is cut to its first word.
    """
    ids = ",".join(sorted({job.split("_")[0].split("+")[0] for job in jobs}))
    if not ids or shutil.which("sacct") is None:
        return None
    query = ("--allocations", "--noheader", "--parsable2", "--jobs", ids, "--format", "JobID,State")
    status, answer = try_client("sacct", *query)
    if status or "accounting storage is disabled" in answer:
        return None
    rows = [line.split("|") for line in answer.splitlines() if line.count("|") == 1]
    return {job: state.split()[0] for job, state in rows}


def largest_array() -> int:
    """How many tasks one array may have: their indices must stay *below* MaxArraySize, and a site may allow fewer."""
    config = run_client("scontrol", "show", "config")
    found = re.search(r"^MaxArraySize\s*=\s*(\d+)", config, re.MULTILINE)
    if found is None:
        raise UserError("scontrol show config names no MaxArraySize", do="set max_array_tasks in the profile")
    fewer = re.search(r"^SchedulerParameters\s*=.*\bmax_array_tasks=(\d+)", config, re.MULTILINE)
    return min(int(found[1]) - 1, int(fewer[1]) if fewer else sys.maxsize)
