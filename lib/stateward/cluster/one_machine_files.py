"""Configuration files of the one-machine Slurm: slurm.conf, gres.conf, slurmdbd.conf."""

from __future__ import annotations

import getpass
import os
from pathlib import Path

#: Ports, from the cluster's base on.
CONTROLLER, ACCOUNTING, MARIADB = 17, 19, 6

_SLURM_CONF = """\
ClusterName=practice
SlurmctldHost=localhost(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
CryptoType=crypto/munge
# cred_expire: a requeued job waits this long (120 s by default) before it may start again.
AuthInfo=socket={munge},cred_expire={cred_expire}
SlurmctldPort={ctld}
StateSaveLocation={dir}/state
SlurmdSpoolDir={dir}/spool/%n
SlurmctldPidFile={dir}/run/slurmctld.pid
SlurmdPidFile={dir}/run/slurmd-%n.pid
SlurmctldLogFile={dir}/log/slurmctld.log
SlurmdLogFile={dir}/log/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin={task}
JobAcctGatherType={gather}
SchedulerType=sched/backfill
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=100
ReturnToService=2
GresTypes=gpu
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SlurmctldParameters=preempt_send_user_signal
MpiDefault=none
JobRequeue=1
MaxArraySize={max_array_size}
MaxJobCount=20000
# The pretended nodes are larger than this machine.
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=1,bf_interval=1,sched_min_interval=0,batch_sched_delay=0
KillWait=10
# A node answers that it ended a step only after KillWait. What it does not answer within MessageTimeout (10 s by
# default) is sent again a minute later, when with so short a cred_expire a requeued job has a step of that number.
MessageTimeout=20
MinJobAge=300
SlurmdTimeout=6
InactiveLimit=0
{accounting}
NodeName=cpu1 NodeHostname=localhost NodeAddr=127.0.0.1 Port={node0} {cpu_cores} RealMemory=64000 State=UNKNOWN
NodeName=gpu[1-3] NodeHostname=localhost NodeAddr=127.0.0.1 Port=[{node1}-{node3}] {gpu_cores} RealMemory=900000 \
Gres=gpu:h100:8 State=UNKNOWN
PartitionName=cpu Nodes=cpu1 Default=YES MaxTime=INFINITE State=UP
PartitionName=gpu Nodes=gpu[1-3] PriorityTier=5 PreemptMode=OFF MaxTime=INFINITE State=UP
PartitionName=low Nodes=gpu[1-3] PriorityTier=1 PreemptMode=REQUEUE GraceTime=4 MaxTime=INFINITE State=UP
PartitionName=high Nodes=gpu[1-3] PriorityTier=10 PreemptMode=OFF MaxTime=INFINITE State=UP
"""

_ACCOUNTING = """\
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=localhost
AccountingStoragePort={dbd}
AccountingStoragePass={munge}
{enforce}AccountingStorageTRES=gres/gpu,gres/gpu:h100
JobAcctGatherFrequency=5"""

_SLURMDBD_CONF = """\
AuthType=auth/munge
AuthInfo=socket={munge}
DbdHost=localhost
DbdPort={dbd}
SlurmUser={user}
LogFile={dir}/log/slurmdbd.log
PidFile={dir}/run/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={maria}
StorageUser=slurm
StoragePass=slurm
StorageLoc=slurm_acct_db
CommitDelay=1
"""


def write_configuration(
    root: Path,
    *,
    port_base: int,
    accounting: bool,
    max_array_size: int,
    cred_expire: int,
    enforce: str,
    binding: bool,
) -> None:
    """Write the files below `root`/etc; the arguments are those of `OneMachineSlurm`."""
    # A task can be bound to cores that there are, and to no others.
    cores = f"Sockets=1 CoresPerSocket={os.cpu_count()} ThreadsPerCore=1"
    values = {
        "user": getpass.getuser(),
        "dir": root,
        "munge": root / "run" / "munge.socket",
        "cred_expire": cred_expire,
        "max_array_size": max_array_size,
        "ctld": port_base + CONTROLLER,
        "dbd": port_base + ACCOUNTING,
        "maria": port_base + MARIADB,
        "node0": port_base + 101,
        "node1": port_base + 111,
        "node3": port_base + 113,
        "task": "task/affinity\nTaskPluginParam=Autobind=Cores" if binding else "task/none",
        "cpu_cores": cores if binding else "CPUs=16",
        "gpu_cores": cores if binding else "CPUs=64",
        "gather": "jobacct_gather/linux" if accounting else "jobacct_gather/none",
        "enforce": f"AccountingStorageEnforce={enforce}\n" if enforce else "",
    }
    more = _ACCOUNTING.format(**values) if accounting else ""
    etc = root / "etc"
    (etc / "slurm.conf").write_text(_SLURM_CONF.format(**values, accounting=more))
    devices = root / "dev"
    for number in range(8):
        device = devices / f"nvidia{number}"
        if not device.exists():
            device.symlink_to("/dev/null")
    (etc / "gres.conf").write_text(f"NodeName=gpu[1-3] Name=gpu Type=h100 File={devices}/nvidia[0-7]\n")
    if accounting:
        write_private(etc / "slurmdbd.conf", _SLURMDBD_CONF.format(**values).encode())


def write_private(path: Path, content: bytes) -> None:
    """A file that only its owner can read, from its first byte on."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
