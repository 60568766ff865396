"""What only the nodes know: a short job step on each kind of node, which reports itself as one line of JSON.

    python -m stateward.cluster.node_probe SPEC     # on a node; started by `probe_nodes`

It starts as jobs do: in the profile's image where there is one, so that nothing of a node's own Python is asked for.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stateward.cluster.batch import environment_lines
from stateward.cluster.container import launcher
from stateward.cluster.finding import Finding, bad, good, unknown
from stateward.cluster.node import node_address
from stateward.cluster.profile import ClusterProfile, Role
from stateward.cluster.scheduler import try_client
from stateward.cluster.submission_environment import job_environment
from stateward.errors import UserError

_MARK = "stateward-node "
#: Directives of `extra` that choose nodes or allow a job on them.
_SELECT = frozenset({"account", "exclude", "licenses", "nodelist", "qos", "reservation"})
#: What the step's shell saw, outside an image: the text of the canary, and the version of the container runtime.
_CANARY, _RUNTIME = "STATEWARD_PROBE_CANARY", "STATEWARD_PROBE_RUNTIME"
_SCONTROL = "STATEWARD_PROBE_SCONTROL"  # its path, with which jobs put themselves back
#: How a launcher says that a node cannot start the image.
_REFUSED = re.compile(r"^error: (.*) → do: (.*)$", re.MULTILINE)
#: CUDA 13's first driver branch; older ones cannot run the image's wheels.
MIN_DRIVER = 580


def probe_nodes(profile: ClusterProfile, run_dir: Path, *, seconds: float) -> Iterator[Finding]:
    """Start one short step in every partition of the profile, on as many nodes as its largest role has."""
    if not seconds:
        yield unknown("nodes", "not probed, as was asked")
        return
    try:
        run_dir.mkdir(parents=True, exist_ok=True)
        canary = run_dir / f".stateward-canary-{secrets.token_hex(4)}"
        canary.write_text(canary.name)
    except OSError as error:
        yield bad("run directory", f"{run_dir} cannot be written here: {error}", "name another with --run-dir")
        return
    try:
        roles = profile.roles().values()
        for options in dict.fromkeys(_options(role) for role in roles):
            of_it = [role for role in roles if _options(role) == options]
            nodes, gpus = max(role.nodes for role in of_it), max(role.gpus for role in of_it)
            yield from _probe(profile, options, nodes, gpus, canary, seconds)
    finally:
        canary.unlink(missing_ok=True)


def _options(role: Role) -> tuple[tuple[str, str], ...]:
    """What decides on which nodes a role's jobs may run; roles with the same options share a probe."""
    named = {"partition": role.partition, "qos": role.qos, "constraint": role.constraint}
    more = {name: str(value) for name, value in role.extra.items() if name in _SELECT}
    return tuple((name, value) for name, value in {**named, **more}.items() if value)


def _probe(
    profile: ClusterProfile,
    options: tuple[tuple[str, str], ...],
    nodes: int,
    gpus: int,
    canary: Path,
    seconds: float,
) -> Iterator[Finding]:
    (_, partition), *narrower = options
    if narrower:
        partition += f" ({', '.join(f'{name} {value}' for name, value in narrower)})"
    command = ["srun", *(f"--{name}={value}" for name, value in options)]
    command += [f"--nodes={nodes}", f"--ntasks={nodes}", "--ntasks-per-node=1"]
    command += [
        "--cpus-per-task=1",
        "--mem=1G",
        "--time=5",
        "--chdir=/",  # of which a launcher mounts nothing
        f"--immediate={seconds:.0f}",
        "--job-name=stateward-doctor",
    ]
    if profile.account and "account" not in dict(options):
        command.append(f"--account={profile.account}")
    if gpus:
        kind = f"{profile.gpu_type}:" if profile.gpu_type else ""
        command.append(f"--gres=gpu:{kind}1" if profile.gpu_request == "gres" else f"--gpus-per-node={kind}1")
    command += ["bash", "-c", "\n".join(_script(profile, canary))]
    # Inside an allocation srun would start a step of it, wherever that is.
    status, answer = try_client(*command, env=job_environment())
    rows = [json.loads(line[len(_MARK) :]) for line in answer.splitlines() if line.startswith(_MARK)]
    refused = sorted(set(_REFUSED.findall(answer)))
    for problem, do in refused:
        yield bad(f"nodes of {partition}", problem, do)
    if not rows and not refused:
        if "Unable to allocate resources" in answer or "immediate" in answer.lower():
            yield unknown(f"nodes of {partition}", f"not probed: {nodes} were not free within {seconds:.0f} s")
        else:
            tail = " ".join(answer.strip().splitlines()[-3:])
            yield bad(f"nodes of {partition}", f"the probe ended with status {status}: {tail}", "mend setup or modules")
        return
    for row in sorted(rows, key=lambda row: str(row["node"])):
        yield from _judge(row, canary, gpus=gpus)
    if len(rows) < nodes and not refused:
        yield bad(f"nodes of {partition}", f"only {len(rows)} of {nodes} answered")


def _script(profile: ClusterProfile, canary: Path) -> list[str]:
    """Shell lines of the step: the set-up of our jobs, what only the node itself shows, then the report."""
    container = profile.container
    lines = [
        "set -e",
        *environment_lines(profile),
        f'export {_SCONTROL}="$(command -v scontrol)"',
        f'export {_CANARY}="$(cat {shlex.quote(str(canary))} 2> /dev/null)"',
    ]
    spec = {"canary": canary.name, "interface": profile.network_interface, "scratch": profile.scratch}
    if container.image:
        lines.append(f'export {_RUNTIME}="$({shlex.quote(container.command)} --version 2> /dev/null)"')
        spec["scratch"] = "/tmp"  # of the image, where it is a private folder of the scratch
    probe = ["-m", "stateward.cluster.node_probe", json.dumps(spec)]
    if container.image:
        return [*lines, f"set -- {shlex.join(probe)}", launcher(container, scratch=profile.scratch)]
    python = "python" if profile.setup or profile.modules else sys.executable
    return [*lines, f"exec {shlex.join([python, *probe])}"]


def _judge(row: dict[str, Any], canary: Path, *, gpus: int) -> Iterator[Finding]:
    node, wrong = f"node {row['node']}", False
    if not row["canary"]:
        wrong = True
        yield bad(node, f"does not see {canary.parent}", "put run directories on the file system that all nodes share")
    for problem, do in row["problems"]:
        wrong = True
        yield bad(node, problem, do)
    driver = str(row["driver"])
    if gpus and not driver:
        yield unknown(node, "no nvidia-smi, so the driver is not known")
    elif driver and int(driver.split(".")[0]) < MIN_DRIVER:
        wrong = True
        yield bad(node, f"driver {driver}; CUDA 13 needs {MIN_DRIVER}", "ask the site for a newer driver")
    if not row["scontrol"]:
        do = "put Slurm's client programs on its PATH, or submit by hand what a time limit or a preemption ended"
        yield unknown(node, "has no scontrol, so jobs cannot put themselves back into the queue", do)
    if not wrong:
        facts = [f"sees the run directory, address {row['address']}, {row['scratch_free_gb']} GB free in scratch"]
        facts += [f"driver {driver}"] if driver else []
        facts += [f"the image starts in {row['runtime']}"] if row["runtime"] else []
        yield good(node, ", ".join(facts))


def facts_here(spec: dict[str, str]) -> dict[str, Any]:
    """This node's report. Nothing raises: what does not work is part of it."""
    problems: list[tuple[str, str]] = []
    address = ""
    try:
        address = node_address(spec["interface"], int(os.environ.get("SLURM_PROCID", "0")))
    except UserError as error:
        problems.append((f"{error.what} ({error.why})", error.do))
    free = 0
    try:
        with tempfile.TemporaryDirectory(dir=spec["scratch"]):
            free = shutil.disk_usage(spec["scratch"]).free >> 30
    except OSError as error:
        problems.append((f"scratch {spec['scratch']} cannot be written: {error}", "set scratch to a node-local folder"))
    return {
        "node": os.environ.get("SLURMD_NODENAME", os.uname().nodename),
        "canary": os.environ.get(_CANARY, "") == spec["canary"],
        "address": address,
        "scratch_free_gb": free,
        "runtime": os.environ.get(_RUNTIME, ""),
        "scontrol": os.environ.get(_SCONTROL, ""),
        "driver": _first_line("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"),
        "problems": problems,
    }


def _first_line(*command: str) -> str:
    if shutil.which(command[0]) is None:
        return ""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip().splitlines()[0] if done.returncode == 0 and done.stdout.strip() else ""


if __name__ == "__main__":
    print(_MARK + json.dumps(facts_here(json.loads(sys.argv[1]))), flush=True)
