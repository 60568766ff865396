"""One job of a campaign submitted by hand: the training job of a profile, and a merge that waits for a job."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from stateward.campaign.job_record import active_jobs, changes, note, settings_of_job, submitting
from stateward.campaign.mounts import mounts
from stateward.campaign.simulator import simulator_seconds, with_simulator
from stateward.cluster.batch import plain_job, training_job
from stateward.cluster.profile import ClusterProfile
from stateward.cluster.scheduler import CHECKOUT as HOME
from stateward.cluster.scheduler import require_cluster, submit_text
from stateward.config import Config
from stateward.config.endpoints import require_addresses
from stateward.errors import UserError
from stateward.training.cpus import check_profile
from stateward.training.layout import resolve_layout

#: Of a job, a component of a heterogeneous one, or an array task.
_JOB = re.compile(r"\d+([+_]\d+)?", re.ASCII)


def training_script(
    config_file: str,
    config: Config,
    profile: ClusterProfile,
    overrides: Sequence[str],
    log: str = "stateward-train-%j.log",
) -> str:
    """The heterogeneous job as sbatch/train_q38.sh has it: to be submitted from the checkout's root.

    Raises:
        UserError: the training step does not fit its devices, or Ray not its CPUs, or see `sized`.
    """
    resolve_layout(config)
    return training_job(
        profile=sized(config, profile),
        name="stateward-train",
        log=log,
        config=from_home(config_file),
        run_dir=from_home(config.run_dir),
        overrides=overrides,
        binds=mounts(config, config_file) if profile.container.image else (),
        simulator_seconds=simulator_seconds(config),
    )


def merge_script(
    config_file: str,
    config: Config,
    profile: ClusterProfile,
    overrides: Sequence[str],
    after: str = "",
    log: str = "stateward-merge-%j.log",
) -> str:
    """The merge as a job of its own, which starts once job `after` has ended well.

    Raises:
        UserError: `after` is no job's id.
    """
    if after and not _JOB.fullmatch(after):
        raise UserError(f"--after {after}", "that is no job's id", "name the number that sbatch gave, for instance 71")
    arguments = ["--config", from_home(config_file), "--run-dir", from_home(config.run_dir), *overrides]
    return plain_job(
        ["python", "jobs/merge.py", *arguments],
        profile=profile,
        role=profile.small,
        name="stateward-merge",
        log=Path(log),
        dependency=f"afterok:{after}" if after else "",
        binds=mounts(config, config_file) if profile.container.image else (),
    )


def log_of(config: Config, link: str) -> str:
    """Where the job of a link writes, with ``%j`` for its id: beside the logs of the pipeline's own jobs."""
    return str(Path(config.run_dir).resolve() / "slurm" / f"{link}-%j.log")


def submit_once(link: str, script: str, config: Config, profile: ClusterProfile) -> tuple[str, list[str]]:
    """Submit the one job of a link, unless one is queued or running; its id, and lines that say which of the two."""
    run_dir, settings = Path(config.run_dir), settings_of_job(config, profile)
    require_cluster()  # before anything is written
    with submitting(run_dir):
        if jobs := active_jobs(run_dir, link):
            found = [f"job {jobs[-1]} of an earlier call is queued or running; nothing was submitted"]
            found += [f"    it has other settings: {line}" for line in changes(run_dir, link, settings)]
            return jobs[-1], [*found, f"    scancel {jobs[-1]} and call this again to submit it anew"]
        job = submit_from_home(script, profile)
        note(run_dir, link, [job], settings)
    log = log_of(config, link).replace("%j", job)
    return job, [f"submitted: job {job}; log: {shlex.quote(log)}"]


def submit_from_home(script: str, profile: ClusterProfile) -> str:
    """Submit a script whose paths are relative to the checkout; the job's id.

    Where the profile says nothing of how `python` becomes the right one, this very interpreter is put first on PATH.
    """
    if profile.setup or profile.modules or profile.container.image:
        return submit_text(script, {})
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    return submit_text(script, {"PYTHON": sys.executable, "PATH": path})


def sized(config: Config, profile: ClusterProfile) -> ClusterProfile:
    """The profile with as many GPU nodes and GPUs a node as the configuration trains on: a job that holds more would
    waste them, and one with fewer would wait for ever. So it is with the simulator's node.

    Raises:
        UserError: a node has too few CPUs for what Ray must reserve there, or an endpoint is each node's own address.
    """
    check_profile(config, head=profile.service.cpus, workers=profile.train.cpus)
    if profile.network_interface != "loopback":  # there all nodes are this machine
        require_addresses(config.episode)
    train = replace(profile.train, nodes=config.train.nodes, gpus=config.train.gpus_per_node)
    return with_simulator(config, replace(profile, train=train))


def from_home(path: str) -> str:
    """`path` relative to the checkout where it lies inside, as the scripts in sbatch/ have it; otherwise absolute."""
    whole = Path(path).resolve()
    return str(whole.relative_to(HOME)) if whole.is_relative_to(HOME) else str(whole)
