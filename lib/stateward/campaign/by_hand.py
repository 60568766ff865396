"""One job of a campaign submitted by hand: the training job of a profile, and a merge that waits for a job."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from stateward.campaign.mounts import mounts
from stateward.campaign.pipeline import JOBS
from stateward.campaign.simulator import simulator_seconds, with_simulator
from stateward.cluster.batch import plain_job, training_job
from stateward.cluster.profile import ClusterProfile
from stateward.cluster.scheduler import submit_text
from stateward.config import Config
from stateward.config.endpoints import require_addresses
from stateward.errors import UserError
from stateward.training.cpus import check_profile
from stateward.training.layout import resolve_layout

HOME = JOBS.parent
#: Of a job, a component of a heterogeneous one, or an array task.
_JOB = re.compile(r"\d+([+_]\d+)?", re.ASCII)


def training_script(config_file: str, config: Config, profile: ClusterProfile, overrides: Sequence[str]) -> str:
    """The heterogeneous job as sbatch/train_q38.sh has it: to be submitted from the checkout's root.

    Raises:
        UserError: the training step does not fit its devices, or Ray not its CPUs, or see `sized`.
    """
    resolve_layout(config)
    return training_job(
        profile=sized(config, profile),
        name="stateward-train",
        log="stateward-train-%j.log",
        config=from_home(config_file),
        run_dir=from_home(config.run_dir),
        overrides=overrides,
        binds=mounts(config, config_file) if profile.container.image else (),
        simulator_seconds=simulator_seconds(config),
    )


def merge_script(
    config_file: str, config: Config, profile: ClusterProfile, overrides: Sequence[str], after: str = ""
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
        log=Path("stateward-merge-%j.log"),
        dependency=f"afterok:{after}" if after else "",
        binds=mounts(config, config_file) if profile.container.image else (),
    )


def submit_from_home(script: str, profile: ClusterProfile) -> str:
    """Submit a script whose paths are relative to the checkout; the job's id.

    Where the profile says nothing of how `python` becomes the right one, this very interpreter is put first on PATH.
    """
    env = {**submission_environment(), "PYTHON": sys.executable}
    if not (profile.setup or profile.modules or profile.container.image):
        env["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{env.get('PATH', '')}"
    else:
        del env["PYTHON"]
    return submit_text(script, f"--chdir={HOME}", env=env)


def submission_environment() -> dict[str, str]:
    """This process's variables without those that a training script takes from a person who calls sbatch: a shell
    that has them for something else must not send a rendered job elsewhere."""
    return {name: value for name, value in os.environ.items() if name not in ("CONFIG", "RUN_DIR", "MAX_RESTARTS")}


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


def describe(job: str, script: str) -> list[str]:
    """What is printed after a submission."""
    name = next(line.split("=", 1)[1] for line in script.splitlines() if line.startswith("#SBATCH --job-name="))
    return [f"submitted: job {job}; log: {shlex.quote(str(HOME / f'{name}-{job}.log'))}"]
