"""The one record of a campaign's jobs: what was submitted for each link, by the pipeline or by hand, and how.

``RUN_DIR/slurm/chain.json`` holds link → job ids, ``settings.json`` beside it what each was submitted with, and arrays
that were submitted by hand leave their own ids in the stage's folder. Whoever submits holds the record's lock.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from stateward.cluster.profile import ClusterProfile
from stateward.cluster.scheduler import ACTIVE, QueuedJob, queue
from stateward.config import Config, config_to_dict
from stateward.errors import UserError
from stateward.store import lock
from stateward.store.stage import changed_inputs, write_json

_BUSY = "another call submits this campaign just now"
#: States of a job's tasks or components that still may run or do, by job id.
States = dict[str, list[str]]
#: Sections of the configuration that a link's job does not read. The report and an evaluation of any label are as
#: `tuned`.
_NOT_OF: dict[str, tuple[str, ...]] = {
    "probe": ("train", "evaluate"),
    "tuned": ("train", "probe", "curate"),
    "curate": ("train", "evaluate"),
    "train": ("probe", "evaluate", "curate"),
    "merge": ("probe", "evaluate", "serve", "curate"),
}


def submitted_jobs(run_dir: Path) -> dict[str, list[str]]:
    """Link → job ids, from the record and from what arrays left in their folders: theirs also names the chunks of a
    submission that Slurm refused half-way."""
    jobs: dict[str, list[str]] = _read(_folder(run_dir) / "chain.json")
    by_hand = [run_dir / "probe" / "slurm" / "jobs.json", *sorted(run_dir.glob("eval/*/slurm/jobs.json"))]
    found = [(path.parents[1].name, path) for path in by_hand]
    found += [(path.parent.name, path) for path in sorted(_folder(run_dir).glob("*/jobs.json"))]
    for name, path in found:
        if path.is_file():
            more = json.loads(path.read_text())["jobs"]
            jobs[name] = list(dict.fromkeys([*jobs.get(name, []), *more]))
    return jobs


def base_id(job: str) -> str:
    """``12`` of ``12_3`` and ``12+1``."""
    return job.split("_")[0].split("+")[0]


def active_states(queued: list[QueuedJob]) -> States:
    """The states of what is queued or running."""
    states: States = {}
    for job in queued:
        if job.state in ACTIVE:
            states.setdefault(base_id(job.job), []).append(job.state)
    return states


def active_jobs(run_dir: Path, link: str, ask: Callable[[Iterable[str]], list[QueuedJob] | None] = queue) -> list[str]:
    """Jobs of a link that are queued or running. Asks Slurm only if some were ever submitted."""
    jobs = submitted_jobs(run_dir).get(link, [])
    states = active_states(ask(jobs) or []) if jobs else {}
    return [job for job in jobs if job in states]


def note(run_dir: Path, link: str, jobs: list[str], settings: dict[str, Any]) -> None:
    """Record what was just submitted. Jobs of earlier submissions that ended are history, and go."""
    for name, value in (("chain.json", jobs), ("settings.json", settings)):
        path = _folder(run_dir) / name
        write_json(path, {**_read(path), link: value})


def settings_of_job(config: Config, profile: ClusterProfile) -> dict[str, Any]:
    """What a job is submitted with, to be compared by a later call."""
    return {"config": config_to_dict(config), "profile": asdict(profile)}


def changes(run_dir: Path, link: str, settings: dict[str, Any]) -> list[str]:
    """What of `settings` matters to `link` and differs from what it was submitted with, one text each."""
    before = _read(_folder(run_dir) / "settings.json").get(link)
    kind = link.partition("-")[0]
    apart = tuple(f"config.{section}." for section in _NOT_OF.get(kind, _NOT_OF["tuned"]))
    return [line for line in changed_inputs(before, settings) if not line.startswith(apart)] if before else []


@contextmanager
def submitting(run_dir: Path) -> Iterator[None]:
    """Hold the record: two calls that submit at the same time would each submit everything.

    Raises:
        UserError: another call holds it.
    """
    folder = _folder(run_dir)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "chain.lock"
    with path.open("a") as file:
        try:
            without_locks = lock.take(file) is not None
        except BlockingIOError as error:
            raise UserError(f"{path} is held", _BUSY, "call this again later") from error
        with _own_file(folder / "chain.busy") if without_locks else nullcontext():
            yield


@contextmanager
def _own_file(path: Path) -> Iterator[None]:
    """In the place of a lock where the file system has none. It stays behind if this process is killed."""
    try:
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    except FileExistsError as error:
        with suppress(FileNotFoundError):  # the other call has just ended
            raise UserError(
                f"{path} is there: {path.read_text()}",
                _BUSY,
                "call this again later; if that process is gone, remove it",
            ) from error
        raise UserError(
            f"{path} was there", _BUSY, "call this again later; if that process is gone, remove it"
        ) from error
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(f"process {os.getpid()} on {socket.gethostname()}")
        yield
    finally:
        path.unlink()


def _folder(run_dir: Path) -> Path:
    return run_dir / "slurm"


def _read(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text())) if path.is_file() else {}
