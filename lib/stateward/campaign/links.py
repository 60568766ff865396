"""The jobs of a campaign as they stand: what disk says first, then squeue and sacct as hints, one call each.

A link is broken when its work is not whole and no job of it is queued or runs any more. What waits behind a broken link
is cancelled by Slurm or never starts; calling the pipeline again submits it anew.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from stateward.campaign.job_record import base_id, submitted_jobs
from stateward.campaign.status import open_shards
from stateward.cluster.scheduler import ACTIVE, QueuedJob, accounted, queue_or_none

#: Link of the chain → the folder whose marker says that its work is whole, for a campaign with one training.
_FOLDERS = {
    "probe": "probe",
    "base": "eval/base",
    "curate": "pool",
    "train": "train",
    "merge": "merged",
    "tuned": "eval/tuned",
    "report": "report",
}
#: What each training of a campaign has of its own.
_OF_A_TRAINING = ("train", "merge", "tuned")
_TROUBLE = ("error", "fault", "traceback", "exception", "killed", "cancelled", "refused", "missing", "no space")


def stage_of(link: str) -> str:
    """The folder behind a link: ``train-seed2`` writes seeds/2/train, and an evaluation lies under its label."""
    kind, _, seed = link.partition("-seed")
    if seed and kind in ("train", "merge"):
        return f"seeds/{seed}/{_FOLDERS[kind]}"
    return _FOLDERS.get(link, f"eval/{link}")


def _place(link: str) -> tuple[int, int, int]:
    """In the order of the chain, the trainings one after the other."""
    kind, _, seed = link.partition("-seed")
    kinds = list(_FOLDERS)
    number = kinds.index(kind) if kind in kinds else kinds.index("tuned")
    trainings = 1 if kind in _OF_A_TRAINING or kind not in kinds else 2 if kind == "report" else 0
    return trainings, int(seed) if seed.isdigit() else 0, number


@dataclass(frozen=True, kw_only=True)
class LinkState:
    """One link. `state`: ``done``, ``ended``, ``running``, ``pending`` or ``broken``; `detail`: counts and reasons.

    `errors` are the last words of failed tasks, each with the path of its log.
    """

    name: str
    jobs: list[str]
    state: str
    detail: str = ""
    errors: tuple[str, ...] = ()


def link_states(run_dir: Path) -> list[LinkState]:
    """Every link that was ever submitted, in the order of the chain; empty for a campaign without Slurm."""
    submitted = dict(sorted(submitted_jobs(run_dir).items(), key=lambda row: _place(row[0])))
    ids = [job for jobs in submitted.values() for job in jobs]
    if not ids:
        return []
    queued = queue_or_none(ids)
    ended = accounted(ids)
    return [_state(run_dir, name, jobs, queued, ended) for name, jobs in submitted.items()]


def breaks(links: Sequence[LinkState]) -> list[tuple[str, list[str]]]:
    """Where the chain is broken: link → the broken ones that wait behind it."""
    found: list[tuple[str, list[str]]] = []
    for name in (link.name for link in links if link.state == "broken"):
        behind = [waiting for first, waiting in found if _waits(name, first)]
        if behind:
            behind[0].append(name)
        else:
            found.append((name, []))
    return found


def _waits(link: str, earlier: str) -> bool:
    """Whether `link` waits, directly or not, for one before it. Trainings do not wait for one another."""
    if link == "report":
        return True
    if earlier in ("probe", "curate"):
        return link != "base"
    return _place(earlier)[:2] == _place(link)[:2] and earlier != "base"


def _state(
    run_dir: Path,
    name: str,
    jobs: list[str],
    queued: Sequence[QueuedJob] | None,
    ended: dict[str, str] | None,
) -> LinkState:
    stage = run_dir / stage_of(name)
    if (stage / "DONE").is_file():
        return LinkState(name=name, jobs=jobs, state="done")
    if queued is None:
        return LinkState(name=name, jobs=jobs, state="unknown", detail="squeue does not answer here")
    own = [job for job in queued if base_id(job.job) in jobs]
    active = [job for job in own if job.state in ACTIVE]
    # Only what accounting calls ended; a task that waits for its turn has not failed.
    states = {job: state for job, state in (ended or {}).items() if base_id(job) in jobs}
    failed = sorted(job for job, state in states.items() if state not in ("COMPLETED", *ACTIVE))
    if active:
        counts = Counter(_words(job) for job in active)
        detail = ", ".join(f"{number} {words}" if len(active) > 1 else words for words, number in counts.items())
        if failed:
            detail += f"; {len(failed)} failed"
        running = any(job.state == "RUNNING" for job in active)
        errors = _errors(run_dir, name, failed)
        return LinkState(name=name, jobs=jobs, state="running" if running else "pending", detail=detail, errors=errors)
    if stage_of(name).startswith(("probe", "eval/")):
        # Its marker is written by the next job; whole are shards that were sealed.
        left = open_shards(stage)
        if not left and (stage / "plan").is_dir():
            return LinkState(name=name, jobs=jobs, state="ended", detail="every shard is sealed")
        detail = f"{len(left)} shards are not sealed: {', '.join(map(str, left[:8]))}" if left else "it never began"
    else:
        detail = "it ended without its marker"
    if ended is not None:
        words = Counter(state for state in states.values())
        detail += "; Slurm says " + (", ".join(f"{number} {state}" for state, number in words.items()) or "nothing")
    return LinkState(name=name, jobs=jobs, state="broken", detail=detail, errors=_errors(run_dir, name, failed or jobs))


def _words(job: QueuedJob) -> str:
    state = job.state.lower()
    return f"{state} ({job.reason})" if job.state == "PENDING" and job.reason not in ("None", "") else state


def _errors(run_dir: Path, name: str, failed: Sequence[str], at_most: int = 3) -> tuple[str, ...]:
    """The last words of failed jobs or tasks, the newest logs first."""
    folders = [run_dir / "slurm", run_dir / "slurm" / name, run_dir / stage_of(name) / "slurm"]
    logs = set()
    for job in failed:
        if "_" in job:
            found = [log for folder in folders for log in folder.glob(f"chunk-*/{job}_*_log.out")]
        else:
            found = [log for folder in folders for log in folder.glob(f"chunk-*/{base_id(job)}_*_log.out")]
            found += (run_dir / "slurm").glob(f"{name}-{base_id(job)}.log")
        logs |= set(found)
    newest = sorted(logs, key=lambda log: log.stat().st_mtime, reverse=True)
    return tuple(f"{words}\n    log: {log}" for log in newest[: 4 * at_most] if (words := _last_words(log)))[:at_most]


def _last_words(log: Path) -> str:
    """The last line of a log that speaks of trouble, or its last line; empty if the log says that all went well."""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - 20_000))
        lines = [line.strip() for line in file.read().decode(errors="replace").replace("\r", "\n").splitlines()]
    lines = [line for line in lines if line]
    if not lines or "successful completion" in lines[-1]:
        return ""
    trouble = [line for line in lines if any(word in line.lower() for word in _TROUBLE)]
    return (trouble or lines)[-1][:300]
