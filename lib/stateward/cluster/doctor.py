"""Check a cluster profile on the real cluster, and say what to change.

    python -m stateward.cluster.doctor configs/cluster/NAME.yaml [--run-dir DIR] [--seeds N]

One line a check: what was looked at, what was found, and what to do where it does not fit. Slurm itself judges each
role (`sbatch --test-only`), and a short job on the nodes shows what only they know: whether they see the run directory,
the driver, the container runtime, the scratch folder. The exit status is 0 only if nothing is wrong.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from stateward.cluster.batch import plain_job, training_job
from stateward.cluster.cluster_facts import ClusterFacts, PartitionFacts, ask_cluster
from stateward.cluster.directives import seconds_of
from stateward.cluster.finding import Finding, bad, good, unknown
from stateward.cluster.node_probe import probe_nodes
from stateward.cluster.profile import ClusterProfile, Role, load_profile
from stateward.cluster.scheduler import try_client
from stateward.errors import UserError, nearest, program


def examine(profile: ClusterProfile, run_dir: Path, *, seconds: float, seeds: int = 1) -> Iterator[Finding]:
    """All checks, from the cheap to the slow.

    Args:
        seconds: how long the probe of the nodes may wait for free ones.
        seeds: trainings of a campaign.

    Raises:
        UserError: there is no Slurm here, or its controller does not answer.
    """
    facts = ask_cluster()
    yield good("Slurm", f"{facts.version}, cluster {facts.name!r}")
    yield from _scheduler(profile, facts)
    yield from _accounting(profile, facts, seeds)
    sound = True
    for name, role in profile.roles().items():
        for finding in _role(name, role, profile, facts):
            sound = sound and finding.state != "bad"
            yield finding
    for finding in _verdicts(profile):
        sound = sound and finding.state != "bad"
        yield finding
    if not sound:
        yield unknown("nodes", "not probed: no job of this profile can start yet", "mend the above first")
        return
    yield from probe_nodes(profile, run_dir, seconds=seconds)


def _scheduler(profile: ClusterProfile, facts: ClusterFacts) -> Iterator[Finding]:
    limit = facts.max_array_size
    if profile.max_array_tasks >= limit:
        yield good("arrays", f"MaxArraySize {limit}: {profile.max_array_tasks} tasks are cut into chunks")
    else:
        yield good("arrays", f"MaxArraySize {limit}")
    if facts.config.get("SchedulerType", "") != "sched/backfill":
        yield bad(
            "heterogeneous jobs",
            f"SchedulerType is {facts.config.get('SchedulerType')}, and only backfill starts them",
            "ask the site for sched/backfill; until then train with jobs/train.py on one node",
        )
    kill_wait = int(facts.config.get("KillWait", "30").split()[0])
    if profile.signal_seconds < 60 + kill_wait:
        yield unknown(
            "signal",
            f"signal_seconds={profile.signal_seconds}: Slurm may be up to 60 s off",
            "set it to 120 or more, unless jobs are as short as the practice campaign's",
        )


def _accounting(profile: ClusterProfile, facts: ClusterFacts, seeds: int) -> Iterator[Finding]:
    if facts.associations is None:
        why = "there is no accounting here (sacctmgr)" if not facts.has_accounting else "sacctmgr did not answer"
        yield unknown("account", f"{why}: account, QOS and job limits were not checked")
        return
    accounts = sorted({row.account for row in facts.associations})
    if profile.account and profile.account not in accounts:
        if facts.enforces or accounts:
            yield bad("account", f"{profile.account!r} is not one of yours", nearest(profile.account, accounts))
        else:
            yield unknown("account", f"{profile.account!r} is not known, but accounts are not enforced here")
    elif not profile.account and facts.enforces and len(accounts) > 1:
        yield unknown("account", f"none is named; jobs go to your default of {', '.join(accounts)}")
    else:
        yield good("account", profile.account or (accounts[0] if accounts else "none needed"))
    limits = [row.max_submit for row in facts.associations if row.max_submit]
    if not limits or not facts.enforces_limits:
        return
    limit = min(limits)
    # The whole chain is queued at once: the arrays of probe and base, curation and report, and of each training its
    # components, its merge and its array.
    components = 2 if profile.simulator is None else 3
    arrays, others = 2 + seeds, 2 + seeds * (components + 1)
    most = (limit - others) // arrays
    if 0 < profile.max_array_tasks <= most:
        yield good("jobs a user", f"at most {limit} queued, {profile.max_array_tasks} tasks an array")
    else:
        yield bad(
            "jobs a user",
            f"at most {limit} may be queued, and every array task counts; max_array_tasks={profile.max_array_tasks},"
            f" and the chain has {arrays} arrays and {others} other jobs",
            f"set max_array_tasks to {most}"
            if most > 0
            else "submit stage by stage (jobs/probe.py --array), not the chain",
        )


def _role(name: str, role: Role, profile: ClusterProfile, facts: ClusterFacts) -> Iterator[Finding]:
    partition = facts.partitions.get(role.partition)
    if partition is None:
        yield bad(
            f"{name}.partition",
            f"{role.partition!r} does not exist",
            nearest(role.partition, facts.partitions),
        )
        return
    if partition.state != "UP":
        yield bad(f"{name}.partition", f"{role.partition} is {partition.state}", "choose one that is UP")
    problems = list(_limits(name, role, profile, partition))
    yield from problems
    if not problems:
        limit = partition.max_time if partition.max_time != "UNLIMITED" else "no time limit"
        yield good(f"{name}.partition", f"{role.partition}, nodes: {len(partition.nodes)}, {limit}")


def _limits(name: str, role: Role, profile: ClusterProfile, partition: PartitionFacts) -> Iterator[Finding]:
    if partition.max_time != "UNLIMITED" and seconds_of(role.time) > seconds_of(partition.max_time):
        yield bad(
            f"{name}.time",
            f"{role.time} is over the partition's {partition.max_time}",
            f'set {name}.time to "{partition.max_time}"; a job goes on from its checkpoint or journal',
        )
    if partition.max_nodes is not None and role.nodes > partition.max_nodes:
        yield bad(f"{name}.nodes", f"{role.nodes} nodes, and a job may have {partition.max_nodes} here")
    for what, listed, own in (
        ("account", partition.allow_accounts, profile.account),
        ("qos", partition.allow_qos, role.qos),
    ):
        if listed and own and own not in listed:
            yield bad(f"{name}.{what}", f"{own!r} may not use {partition.name}", nearest(own, listed))
    fitting = [n for n in partition.nodes if n.cpus >= role.cpus and n.memory_mb >= role.memory_gb * 1024]
    if not fitting:
        biggest = max(partition.nodes, key=lambda n: (n.cpus, n.memory_mb), default=None)
        if biggest is not None:
            yield bad(
                f"{name}.cpus/memory_gb",
                f"no node of {partition.name} has {role.cpus} CPUs and {role.memory_gb} GB",
                f"its largest has {biggest.cpus} CPUs and {biggest.memory_mb // 1024} GB",
            )
        return
    if not role.gpus:
        return
    kinds = sorted({kind for n in partition.nodes for kind in n.gpus if kind})
    if profile.gpu_type and kinds and profile.gpu_type not in kinds:
        yield bad("gpu_type", f"{profile.gpu_type!r} is not in {partition.name}", nearest(profile.gpu_type, kinds))
        return
    if sum(n.gpus_of(profile.gpu_type) >= role.gpus for n in fitting) < role.nodes:
        most = max((n.gpus_of(profile.gpu_type) for n in partition.nodes), default=0)
        yield bad(
            f"{name}.gpus",
            f"{role.nodes} nodes with {role.gpus} GPUs are not in {partition.name}",
            f"its nodes have at most {most}" if most else "choose a partition whose nodes have GPUs",
        )


def _verdicts(profile: ClusterProfile) -> Iterator[Finding]:
    """Slurm's own word on each job of ours, which also knows QOS, accounts and limits that are not shown to users."""
    log = Path("/dev/null")
    scripts = {
        name: plain_job(["true"], profile=profile, role=getattr(profile, name), name="stateward-doctor", log=log)
        for name in ("sample", "small")
    }
    scripts["training job"] = training_job(profile=profile, name="stateward-doctor", log=log, config="", run_dir="")
    for name, script in scripts.items():
        with tempfile.NamedTemporaryFile("w", suffix=".sh") as file:
            file.write(script)
            file.flush()
            status, answer = try_client("sbatch", "--test-only", file.name)
        words = " ".join(line.removeprefix("sbatch: ") for line in answer.splitlines()).strip()
        if status:
            yield bad(f"sbatch ({name})", words, "see the lines above, or ask the site with this text")
        else:
            yield good(f"sbatch ({name})", words)


def print_findings(findings: Iterator[Finding]) -> int:
    """One line each as they come; how many are bad."""
    wrong = 0
    for finding in findings:
        wrong += finding.state == "bad"
        print(finding.line(), flush=True)
    return wrong


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("profile", type=Path, metavar="PROFILE", help="for instance configs/cluster/h100.yaml")
    parser.add_argument(
        "--run-dir", type=Path, default=Path(), metavar="DIR", help="that all nodes must see (default: this folder)"
    )
    parser.add_argument(
        "--wait", type=float, default=120.0, metavar="S", help="for free nodes; 0 probes none (default: 120)"
    )
    parser.add_argument("--seeds", type=int, default=1, metavar="N", help="trainings of a campaign (default: 1)")
    args = parser.parse_args(argv)
    if args.seeds < 1:
        raise UserError(f"--seeds {args.seeds}", "a campaign has at least one training", "leave it out for one")
    found = examine(load_profile(args.profile), args.run_dir.resolve(), seconds=args.wait, seeds=args.seeds)
    wrong = print_findings(found)
    print(f"\n{wrong} to mend" if wrong else "\nthis profile fits the cluster")
    return 1 if wrong else 0


if __name__ == "__main__":
    program(main)
