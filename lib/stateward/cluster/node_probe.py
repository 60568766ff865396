"""What only the nodes know: a short job step on each kind of node, which reports itself as one line of JSON.

python -m stateward.cluster.node_probe SPEC.json     # on a node; started by `probe_nodes`
"""

from __future__ import annotations

import json
import os
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
from stateward.cluster.finding import Finding, bad, good, unknown
from stateward.cluster.node import node_address
from stateward.cluster.profile import ClusterProfile
from stateward.cluster.scheduler import try_client
from stateward.errors import UserError

_MARK = "stateward-node "
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
        spec = {
            "canary": str(canary),
            "scratch": profile.scratch,
            "interface": profile.network_interface,
            "container": profile.container.command if profile.container.image else "",
            "image": profile.container.image,
        }
        roles = profile.roles().values()
        for partition in dict.fromkeys(role.partition for role in roles):
            of_it = [role for role in roles if role.partition == partition]
            nodes, gpus = max(role.nodes for role in of_it), max(role.gpus for role in of_it)
            yield from _probe(profile, partition, nodes, gpus, spec, seconds)
    finally:
        canary.unlink(missing_ok=True)


def _probe(
    profile: ClusterProfile, partition: str, nodes: int, gpus: int, spec: dict[str, str], seconds: float
) -> Iterator[Finding]:
    command = ["srun", f"--partition={partition}", f"--nodes={nodes}", f"--ntasks={nodes}", "--ntasks-per-node=1"]
    command += [
        "--cpus-per-task=1",
        "--mem=1G",
        "--time=5",
        f"--immediate={seconds:.0f}",
        "--job-name=stateward-doctor",
    ]
    if profile.account:
        command.append(f"--account={profile.account}")
    qos = next((r.qos for r in (profile.service, profile.train, profile.sample) if r.partition == partition), "")
    if qos:
        command.append(f"--qos={qos}")
    if gpus:
        kind = f"{profile.gpu_type}:" if profile.gpu_type else ""
        command.append(f"--gres=gpu:{kind}1" if profile.gpu_request == "gres" else f"--gpus-per-node={kind}1")
    python = "python" if profile.setup or profile.modules else sys.executable
    probe = [python, "-m", "stateward.cluster.node_probe", json.dumps(spec)]
    command += ["bash", "-c", "\n".join(["set -e", *environment_lines(profile), f"exec {shlex.join(probe)}"])]
    status, answer = try_client(*command)
    rows = [json.loads(line[len(_MARK) :]) for line in answer.splitlines() if line.startswith(_MARK)]
    if not rows:
        if "Unable to allocate resources" in answer or "immediate" in answer.lower():
            yield unknown(f"nodes of {partition}", f"not probed: {nodes} were not free within {seconds:.0f} s")
        else:
            tail = " ".join(answer.strip().splitlines()[-3:])
            yield bad(f"nodes of {partition}", f"the probe ended with status {status}: {tail}", "mend setup or modules")
        return
    for row in sorted(rows, key=lambda row: str(row["node"])):
        yield from _judge(row, profile, spec, gpus=gpus)
    if len(rows) < nodes:
        yield bad(f"nodes of {partition}", f"only {len(rows)} of {nodes} answered")


def _judge(row: dict[str, Any], profile: ClusterProfile, spec: dict[str, str], *, gpus: int) -> Iterator[Finding]:
    node, wrong = f"node {row['node']}", False
    if not row["canary"]:
        wrong = True
        folder = Path(spec["canary"]).parent
        yield bad(node, f"does not see {folder}", "put run directories on the file system that all nodes share")
    for problem, do in row["problems"]:
        wrong = True
        yield bad(node, problem, do)
    if profile.container.image and not row["container"]:
        wrong = True
        yield bad(node, f"no {profile.container.command} on PATH", "add its module to modules")
    driver = str(row["driver"])
    if gpus and not driver:
        yield unknown(node, "no nvidia-smi, so the driver is not known")
    elif driver and int(driver.split(".")[0]) < MIN_DRIVER:
        wrong = True
        yield bad(node, f"driver {driver}; CUDA 13 needs {MIN_DRIVER}", "ask the site for a newer driver")
    if not wrong:
        facts = [f"sees the run directory, address {row['address']}, {row['scratch_free_gb']} GB free in scratch"]
        facts += [f"driver {driver}"] if driver else []
        facts += [str(row["container"])] if row["container"] else []
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
    if spec["image"] and not Path(spec["image"]).exists():
        problems.append((f"does not see the image {spec['image']}", "put it on the file system that all nodes share"))
    canary = Path(spec["canary"])
    return {
        "node": os.environ.get("SLURMD_NODENAME", os.uname().nodename),
        "canary": canary.is_file() and canary.read_text() == canary.name,
        "address": address,
        "scratch_free_gb": free,
        "container": _first_line(spec["container"], "--version") if spec["container"] else "",
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
