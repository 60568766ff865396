"""What is killed in a round. Each fault takes a cluster with a campaign on it and says what it hit, or None if nothing
of its kind was there to hit just then."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import psutil

from stateward.cluster.one_machine import NODES, OneMachineSlurm
from stateward.cluster.processes import carrying


@dataclass
class Site:
    """The cluster under a campaign, and what has to be put right again later: time → action."""

    cluster: OneMachineSlurm
    random: random.Random
    later: list[tuple[float, Callable[[], None]]] = field(default_factory=list)

    def mend(self, *, all_of_it: bool = False) -> None:
        """Bring back nodes and the controller when their time has come."""
        due = [entry for entry in self.later if all_of_it or entry[0] <= time.monotonic()]
        for entry in due:
            self.later.remove(entry)
            entry[1]()


def job_processes(cluster: OneMachineSlurm) -> list[tuple[psutil.Process, dict[str, str]]]:
    """Processes of this cluster's jobs with their environment; Slurm's own are not among them.

    Some of Ray's write their titles over the environment they were started with, so they count with their raylet's.
    """
    of_cluster = carrying({"SLURM_CONF": cluster.env["SLURM_CONF"]})
    found = {process: env for process, env in of_cluster if "SLURM_JOB_ID" in env}
    for process, env in [(p, env) for p, env in found.items() if _name(p) == "raylet"]:
        for child in _children(process):
            found.setdefault(child, env)
    return list(found.items())


def _children(process: psutil.Process) -> list[psutil.Process]:
    try:
        return list(process.children(recursive=True))
    except psutil.NoSuchProcess:
        return []


def kill(process: psutil.Process) -> bool:
    try:
        process.kill()
    except psutil.NoSuchProcess:
        return False
    return True


def _argv(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except psutil.NoSuchProcess:
        return []


def _name(process: psutil.Process) -> str:
    try:
        return str(process.name())
    except psutil.NoSuchProcess:
        return ""


def array_task(site: Site) -> str | None:
    """kill -9 of the Python of an array task."""
    tasks = [(p, env) for p, env in job_processes(site.cluster) if "stateward.cluster.array_task" in _argv(p)]
    tasks = [(p, env) for p, env in tasks if _name(p).startswith("python")]  # srun names it too
    if not tasks:
        return None
    process, env = site.random.choice(tasks)
    job = f"{env.get('SLURM_ARRAY_JOB_ID')}_{env.get('SLURM_ARRAY_TASK_ID')}"
    return f"array task {job} ({env.get('SLURM_JOB_NAME')})" if kill(process) else None


def node(site: Site) -> str | None:
    """A whole node: its slurmd, its step daemons and every process of jobs on it. It comes back after a while."""
    down = {name for name in NODES if site.cluster.run("sinfo", "-hn", name, "-o", "%T").stdout.strip()[:4] == "down"}
    processes = [(p, env) for p, env in job_processes(site.cluster) if env.get("SLURMD_NODENAME") not in down]
    names = sorted({env["SLURMD_NODENAME"] for _, env in processes if "SLURMD_NODENAME" in env})
    if not names or site.later:
        return None
    name = site.random.choice(names)
    site.cluster.stop_daemon(f"slurmd-{name}", signal.SIGKILL)
    doomed = [process for process, env in processes if env.get("SLURMD_NODENAME") == name]
    daemons = {parent for process in doomed for parent in _step_daemons(process)}
    for process in [*daemons, *doomed]:
        kill(process)
    site.later.append((time.monotonic() + 10.0, lambda: site.cluster.start_node(name)))
    return f"node {name}, {len(doomed)} processes"


def _step_daemons(process: psutil.Process) -> list[psutil.Process]:
    try:
        return [parent for parent in process.parents() if parent.name().startswith("slurmstepd")]
    except psutil.NoSuchProcess:
        return []


def training_processes(site: Site) -> list[tuple[psutil.Process, dict[str, str]]]:
    return [(p, env) for p, env in job_processes(site.cluster) if env.get("SLURM_JOB_NAME", "").endswith("-train")]


def driver(processes: Sequence[tuple[psutil.Process, dict[str, str]]]) -> psutil.Process | None:
    """The process that trains: jobs/train.py itself, neither its preflight nor srun and rank 0 that name it too."""
    found = [p for p, _ in processes if (words := _argv(p))[1:2] == ["jobs/train.py"] and "--preflight" not in words]
    return min(found, key=lambda p: p.create_time(), default=None)


def ray_head(site: Site) -> str | None:
    """Ray's head; the driver where the campaign has no Ray, or its Ray has no head yet."""
    processes = training_processes(site)
    heads = [p for p, _ in processes if _name(p) == "gcs_server"]
    head = heads[0] if heads else driver(processes)
    if head is None:
        return None
    name = "gcs_server" if heads else "driver"
    return f"head ({name})" if kill(head) else None


def worker(site: Site) -> str | None:
    """A raylet of a worker node or a process that works for it, which of the two by lot; the rank itself where there is
    no Ray, or none yet."""
    sorts: dict[str, list[tuple[psutil.Process, dict[str, str]]]] = {}
    for process, env in training_processes(site):
        if (sort := _sort(process)) and env.get("SLURM_PROCID", "0") != "0":
            sorts.setdefault(sort, []).append((process, env))
    if not sorts:
        return None
    sort = site.random.choice(sorted(sorts.keys() - {"rank"}) or ["rank"])
    process, env = site.random.choice(sorts[sort])
    title = _name(process) if sort == "Ray worker" else ""
    return f"worker rank {env['SLURM_PROCID']} ({sort}{title and f' {title}'})" if kill(process) else None


def _sort(process: psutil.Process) -> str:
    words, name = _argv(process), _name(process)
    if words[1:3] == ["-m", "stateward.cluster.ray_cluster"] or words[2:4] == ["-m", "stateward.cluster.ray_cluster"]:
        return "rank"
    if name == "raylet":
        return "raylet"
    # Its agents are named likewise; they are part of the raylet, which ends with them.
    return "Ray worker" if name.startswith("ray::") and not name.endswith("Agent") else ""


def _running(site: Site) -> list[list[str]]:
    rows = site.cluster.run("squeue", "-h", "--array", "-t", "RUNNING", "-o", "%i|%j|%P").stdout.splitlines()
    return [row.split("|") for row in rows]


def requeue(site: Site) -> str | None:
    """scontrol requeue of a running job or array task, as an administrator or a user does it."""
    rows = [row for row in _running(site) if not row[1].startswith("other")]
    if not rows:
        return None
    job = site.random.choice(rows)
    done = site.cluster.run("scontrol", "requeue", job[0].partition("+")[0])
    return f"requeue of {job[0]} ({job[1]})" if done.returncode == 0 else None


def preemption(site: Site) -> str | None:
    """Somebody else's job in a higher partition takes all GPU nodes for some seconds."""
    if not [row for row in _running(site) if row[2] == "low"] or [row for row in _running(site) if row[2] == "high"]:
        return None
    options = ("--partition=high", "--nodes=3", "--exclusive", "--time=1", "--output=/dev/null", "--job-name=other")
    done = site.cluster.run("sbatch", *options, "--wrap", "sleep 2")
    return "preemption of the GPU nodes" if done.returncode == 0 else None


def controller(site: Site) -> str | None:
    """The controller is restarted and away for some seconds; jobs go on meanwhile.

    Not by kill -9: what it had not saved, such as a launch of a second ago, is then done twice, so that Slurm drains
    the node and holds the job ("launch failed requeued held") until an administrator comes.
    """
    if site.later:
        return None
    site.cluster.stop_daemon("slurmctld")
    site.later.append((time.monotonic() + 3.0, site.cluster.start_controller))
    return "controller"


FAULTS = {f.__name__: f for f in (array_task, node, ray_head, worker, requeue, preemption, controller)}
