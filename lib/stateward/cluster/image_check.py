"""Whether an image fits, before GPU hours are queued: on this machine, or on the training nodes of a cluster."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from stateward.cluster.batch import environment_lines
from stateward.cluster.container import launcher
from stateward.cluster.finding import Finding, bad, good, unknown
from stateward.cluster.image_facts import MARK
from stateward.cluster.profile import ClusterProfile, ContainerConfig, Role, load_profile, role_directives
from stateward.errors import UserError

#: Lowest driver of each CUDA, for every minor version of it (CUDA compatibility guide, minor version compatibility).
MIN_DRIVER = {"12": (525, 60, 13), "13": (580, 65, 6)}
#: Ray's object store takes up to 8 GB of it (ray_cluster), and NCCL and the engines some beside.
SHM_GB = {True: 16.0, False: 2.0}
_CONFIGS = Path(__file__).parents[3]
_SECONDS = 300


def check_image(image: Path, cluster: str | None) -> Iterator[Finding]:
    """Findings on the image, one at a time as they are known.

    Args:
        cluster: name or file of a profile: then one step runs on each of its training nodes. Otherwise this machine.

    Raises:
        UserError: there is no such image or profile.
    """
    if not image.exists():
        raise UserError(f"{image}: no such image", do="make image, or make practice-image")
    image = image.resolve()
    if cluster:
        path = Path(cluster)
        profile = load_profile(path if path.suffix else _CONFIGS / "configs" / "cluster" / f"{cluster}.yaml")
        profile = replace(profile, container=replace(profile.container, image=str(image)))
        rows, said = _on_nodes(profile)
        expected = profile.train.nodes
    else:
        rows, said = _here(ContainerConfig(image=str(image), command=os.environ.get("APPTAINER", "apptainer")))
        expected = 1
    if not rows:
        yield bad("image", f"it did not answer: {said}", "apptainer test IMAGE says more")
        return
    if len(rows) < expected:
        yield bad("nodes", f"only {len(rows)} of {expected} answered: {said}", "look at the others with sinfo")
    yield from judge(rows, gpus=any(row["driver"] for row in rows))
    if not cluster:
        yield unknown("nodes", "not compared with one another", "add --cluster NAME")


def judge(rows: Sequence[dict[str, Any]], *, gpus: bool, locks: Path = _CONFIGS / "containers") -> Iterator[Finding]:
    """What the reports of the nodes (`image_facts`) say: a line a question, naming the nodes where not all is well."""
    cuda = str(rows[0]["cuda"])
    wanted = MIN_DRIVER.get(cuda.split(".")[0])
    for row in rows:
        found = str(row["driver"])
        if cuda and not found:
            yield bad("driver", f"{row['node']} has none; the image has CUDA {cuda}", "ask for GPUs, or see --nv")
        elif cuda and wanted and _numbers(found) < wanted:
            least = ".".join(map(str, wanted))
            yield bad(
                "driver", f"{found} on {row['node']}; CUDA {cuda} needs {least}", "ask the site for a newer driver"
            )
    drivers = sorted({str(row["driver"]) for row in rows})
    if cuda and wanted and all(_numbers(found) >= wanted for found in drivers):
        yield good("driver", f"{', '.join(drivers)} for CUDA {cuda}")
    elif not cuda:
        yield good("driver", "the image is for CPUs; none is needed")
    yield from _same(rows, "nccl", "NCCL", "give every node the same image and the same NCCL variables")
    yield from _same(
        rows, "plugin", "NCCL's network plugin", "bind the same plugin on every node, or NCCL_NET_PLUGIN=none"
    )
    small = [row for row in rows if row["shm_gb"] < SHM_GB[gpus]]
    for row in small:
        yield bad(
            "/dev/shm", f"{row['shm_gb']} GB on {row['node']}; {SHM_GB[gpus]:g} are needed", "ask the site to raise it"
        )
    if not small:
        yield good("/dev/shm", f"{min(row['shm_gb'] for row in rows):g} GB at least")
    closed = [row for row in rows if row["tmp"]]
    for row in closed:
        yield bad("/tmp", f"cannot be written on {row['node']}: {row['tmp']}", "set scratch to a node-local folder")
    if not closed:
        yield good("/tmp", "can be written")
    yield from _versions(rows, locks)


def _versions(rows: Sequence[dict[str, Any]], locks: Path) -> Iterator[Finding]:
    row = rows[0]
    for line in row["drift"]:
        yield bad("versions", line, "build the image anew from its lock")
    if any(row["site"] for row in rows):
        yield bad("versions", f"packages of a home are seen: {row['site']}", "do not bind a home")
    ours = locks / row["lock_name"]
    if not row["lock"]:
        yield bad("versions", "the image holds no lock", "build it with make image")
    elif ours.is_file() and hashlib.sha256(ours.read_bytes()).hexdigest() != row["lock"]:
        yield bad("versions", f"the image was built from another {ours.name} than this checkout's", "build it anew")
    elif not row["drift"]:
        yield good("versions", f"as {row['lock_name']} has them")


def _same(rows: Sequence[dict[str, Any]], key: str, what: str, do: str) -> Iterator[Finding]:
    values: dict[str, list[str]] = {}
    for row in rows:
        values.setdefault(str(row[key]), []).append(str(row["node"]))
    if len(values) == 1:
        yield good(what, f"{next(iter(values)) or 'none'}{' on every node' if len(rows) > 1 else ''}")
    else:
        yield bad(what, "; ".join(f"{value or 'none'} on {', '.join(nodes)}" for value, nodes in values.items()), do)


def _here(container: ContainerConfig) -> tuple[list[dict[str, Any]], str]:
    with tempfile.TemporaryDirectory() as folder:
        text = launcher(container, scratch=folder)
        command = ["bash", "-c", text, "in-image", "-m", "stateward.cluster.image_facts"]
        return _rows(command)


def _on_nodes(profile: ClusterProfile) -> tuple[list[dict[str, Any]], str]:
    """One task on each node that a training job would have."""
    role: Role = replace(profile.train, cpus=1, memory_gb=4, time="10", exclusive=False)
    options = role_directives(profile, role)
    command = [
        "srun",
        f"--ntasks={role.nodes}",
        "--job-name=stateward-image",
        "--chdir=/",
        f"--immediate={_SECONDS}",
    ]
    command += [f"--{name}={value}" for name, value in options.items()]
    lines = [*environment_lines(profile), "set -- -m stateward.cluster.image_facts"]
    script = "\n".join([*lines, launcher(profile.container, scratch=profile.scratch)])
    return _rows([*command, "bash", "-c", script])


def _rows(command: Sequence[str]) -> tuple[list[dict[str, Any]], str]:
    try:
        done = subprocess.run(
            command,
            cwd="/",  # of which the launcher mounts nothing
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_SECONDS * 2,
            check=False,
        )
    except FileNotFoundError as error:
        raise UserError(
            f"{error.filename} is not on PATH", do="call this on a login node, or leave --cluster out"
        ) from error
    except subprocess.TimeoutExpired:
        return [], f"no answer within {_SECONDS * 2} s"
    rows = [json.loads(line[len(MARK) :]) for line in done.stdout.splitlines() if line.startswith(MARK)]
    said = " ".join((done.stderr or done.stdout).strip().splitlines()[-3:])
    return sorted(rows, key=lambda row: str(row["node"])), said or f"status {done.returncode}"


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())
