"""A whole Slurm on one machine, to practise on and to test with: one CPU node and three nodes of 8 pretended GPUs.

    python -m stateward.cluster.one_machine up DIR      # prints the SLURM_CONF to export
    python -m stateward.cluster.one_machine down DIR

Everything lies under DIR: configuration, munge's key and socket, state, logs, MariaDB's data.
It runs as root or as an ordinary user; as a user, all jobs are that user's. Needs Debian's packages munge, slurmctld,
slurmd, slurm-client and, for accounting, slurmdbd, mariadb-server-core and mariadb-client-core.

The scheduler's intervals are short, so that a heterogeneous job, which only backfill starts, starts in a second.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from stateward.cluster.one_machine_files import CONTROLLER, MARIADB, write_configuration, write_private
from stateward.errors import UserError, program

_SBIN = ("/usr/sbin", "/sbin")
NODES = ("cpu1", "gpu1", "gpu2", "gpu3")

_GRANTS = (
    "create user if not exists slurm@'127.0.0.1' identified by 'slurm';"
    "create user if not exists slurm@localhost identified by 'slurm';"
    "grant all on slurm_acct_db.* to slurm@'127.0.0.1'; grant all on slurm_acct_db.* to slurm@localhost"
)


@dataclass(kw_only=True)
class OneMachineSlurm:
    """One such cluster under `root`.

    Attributes:
        port_base: 120 ports from here on are the cluster's; two clusters need bases 200 apart.
        accounting: run slurmdbd with MariaDB; without it there is no `sacct`.
        max_array_size: MaxArraySize; Slurm's own default is 1001, and array indices must stay below it.
        cred_expire: seconds that a requeued job waits.
        enforce: AccountingStorageEnforce, for instance ``limits`` to test a user's limit of jobs.
        binding: as on sites that bind each task to one core; the nodes then have this machine's cores.
    """

    root: Path
    port_base: int = 26_800
    accounting: bool = True
    max_array_size: int = 1_001
    cred_expire: int = 5
    enforce: str = ""
    binding: bool = False
    env: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self.root = self.root.resolve()
        # Socket paths hold at most 107 bytes.
        if len(str(self.root)) > 80:
            raise UserError(
                f"{self.root} is too long", "munge's and MariaDB's sockets lie below it", "use a shorter folder"
            )
        path = os.pathsep.join([os.environ.get("PATH", ""), *_SBIN])
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM_", "SBATCH_", "SQUEUE_"))}
        self.env = {**clean, "PATH": path, "SLURM_CONF": str(self.root / "etc" / "slurm.conf")}

    def up(self) -> None:
        """Start every daemon and wait until all nodes are idle. A cluster that is up already is left as it is.

        Raises:
            UserError: a package is not installed, or a daemon did not start; the text names its log.
        """
        self._require()
        for name in ("etc", "run", "log", "state", "spool", "dev", "my"):
            (self.root / name).mkdir(parents=True, exist_ok=True)
        for node in NODES:
            (self.root / "spool" / node).mkdir(exist_ok=True)
        write_configuration(
            self.root,
            port_base=self.port_base,
            accounting=self.accounting,
            max_array_size=self.max_array_size,
            cred_expire=self.cred_expire,
            enforce=self.enforce,
            binding=self.binding,
        )
        self._start_munge()
        if self.accounting:
            self._start_accounting()
        self._daemon("slurmctld", ["slurmctld", "-i"])
        for node in NODES:
            self._daemon(f"slurmd-{node}", ["slurmd", "-N", node])
        self._until("all nodes are idle", self._all_idle, log="slurmctld.log")

    def down(self) -> None:
        """Cancel every job, then stop every daemon by its own pid and wait until it is gone.

        A job's processes outlive the daemons of its node, so they are ended first.
        """
        if self._pid("slurmctld") is not None:
            self.cancel_all()
        # MariaDB last: slurmdbd flushes to it.
        for name in (*(f"slurmd-{n}" for n in NODES), "slurmctld", "slurmdbd", "mariadb", "munged"):
            self.stop_daemon(name)

    def cancel_all(self, seconds: float = 30.0) -> None:
        """Cancel the jobs of this cluster and wait until their processes are gone, at most so many seconds."""
        deadline = time.monotonic() + seconds
        while jobs := self.run("squeue", "--noheader", "--format", "%A").stdout.split():
            self.run("scancel", *sorted(set(jobs)))
            if time.monotonic() > deadline:
                print(f"jobs {', '.join(sorted(set(jobs)))} did not end within {seconds:g} s", file=sys.stderr)
                return
            time.sleep(0.2)

    def stop_daemon(self, name: str, sig: signal.Signals = signal.SIGTERM) -> None:
        """End one daemon (``slurmctld``, ``slurmd-gpu1``, ...) and wait for its end; SIGKILL after ten seconds."""
        pid = self._pid(name)
        if pid is None:
            return
        deadline = time.monotonic() + 10
        os.kill(pid, sig)
        while _alive(pid):
            if time.monotonic() > deadline:
                os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)
        (self.root / "run" / f"{name}.pid").unlink(missing_ok=True)

    def start_node(self, node: str, hidden: Path | None = None) -> None:
        """Start the daemon of a node again, after `stop_daemon`; as root, so that its jobs do not see folder `hidden`.

        They get a mount namespace of their own, in which an empty file system lies over it.
        """
        command = ["slurmd", "-N", node]
        if hidden is not None:
            script = 'mount -t tmpfs none "$1" && exec slurmd -N "$2"'
            command = ["unshare", "--mount", "--propagation=private", "sh", "-c", script, "sh", str(hidden), node]
        self._daemon(f"slurmd-{node}", command)

    def start_controller(self) -> None:
        """Start the controller again, after `stop_daemon`; its state was saved."""
        self._daemon("slurmctld", ["slurmctld"])
        self._until("the controller answers", lambda: self.run("scontrol", "ping").returncode == 0, log="slurmctld.log")

    def run(self, *command: str, check: bool = False) -> subprocess.CompletedProcess[str]:
        """A client command (``sbatch``, ``squeue``, ...) against this cluster."""
        return subprocess.run(command, env=self.env, capture_output=True, text=True, check=check)

    def _require(self) -> None:
        needed = ["munged", "slurmctld", "slurmd", "sbatch", "scontrol"]
        if self.accounting:
            needed += ["slurmdbd", "mariadbd", "mariadb", "mariadb-install-db", "sacctmgr"]
        absent = [name for name in needed if shutil.which(name, path=self.env["PATH"]) is None]
        if absent:
            packages = "munge slurmctld slurmd slurm-client slurmdbd mariadb-server-core mariadb-client-core"
            raise UserError(
                f"not installed: {', '.join(absent)}", do=f"apt-get install --no-install-recommends {packages}"
            )

    def _start_munge(self) -> None:
        key = self.root / "etc" / "munge.key"
        if not key.exists():
            write_private(key, os.urandom(128))
        run = self.root / "run"
        run.chmod(0o755)
        command = ["munged", f"--key-file={key}", f"--socket={run}/munge.socket", f"--pid-file={run}/munged.pid"]
        command += [
            f"--log-file={self.root}/log/munged.log",
            f"--seed-file={self.root}/state/munge.seed",
            "--num-threads=2",
        ]
        # --force: folders that others may write (a world-writable /tmp) above ours are only warned of.
        self._daemon("munged", [*command, "--force"])

    def _start_accounting(self) -> None:
        data = self.root / "my" / "data"
        # A folder of its own for temporary tables: at its start a server removes what it finds of them, as its own.
        temporary = self.root / "my" / "tmp"
        temporary.mkdir(exist_ok=True)
        options = ["--no-defaults", f"--datadir={data}", f"--tmpdir={temporary}"]
        if os.geteuid() == 0:
            options.append("--user=root")
        if not (data / "mysql").is_dir():
            install = ["mariadb-install-db", *options, "--auth-root-authentication-method=normal", "--skip-test-db"]
            try:
                self._logged(install, "mariadb-install.log")
            except UserError:
                # Half of a database would be taken for a whole one by the next start.
                shutil.rmtree(data, ignore_errors=True)
                raise
        path = self.root / "my" / "s"
        if self._pid("mariadb") is None:
            command = ["mariadbd", *options, f"--socket={path}", f"--port={self.port_base + MARIADB}"]
            command += ["--bind-address=127.0.0.1", f"--pid-file={self.root}/run/mariadb.pid"]
            command += ["--innodb-buffer-pool-size=64M", "--innodb-lock-wait-timeout=900", "--performance-schema=OFF"]
            # Durability of a practice cluster's accounting is not worth a disk flush a commit.
            command += ["--innodb-flush-log-at-trx-commit=0"]
            with open(self.root / "log" / "mariadb.log", "ab") as log:
                subprocess.Popen(
                    command, env=self.env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
                )
        client = ["mariadb", "--no-defaults", "-S", str(path), "-u", "root", "-e"]
        self._until("MariaDB answers", lambda: self.run(*client, "select 1").returncode == 0, log="mariadb.log")
        self.run(*client, _GRANTS, check=True)
        # The first start makes the tables, which now and then fails on a fresh database and then works.
        for _ in range(3):
            self._daemon("slurmdbd", ["slurmdbd"])
            try:
                self._until("slurmdbd answers", self._accounting_answers, log="slurmdbd.log", seconds=20)
                break
            except UserError:
                self.stop_daemon("slurmdbd")
        else:
            raise UserError("slurmdbd did not start", do=f"read {self.root}/log/slurmdbd.log")
        if "practice" not in self.run("sacctmgr", "-n", "list", "cluster", "format=cluster").stdout:
            self.run("sacctmgr", "-i", "add", "cluster", "practice", check=True)

    def _accounting_answers(self) -> bool:
        return self.run("sacctmgr", "-n", "list", "cluster").returncode == 0

    def _all_idle(self) -> bool:
        states = self.run("sinfo", "-h", "-N", "-o", "%N %T").stdout
        return {line for line in states.splitlines() if line.endswith(" idle")} == {f"{node} idle" for node in NODES}

    def _daemon(self, name: str, command: Sequence[str]) -> None:
        if self._pid(name) is None:
            self._logged(command, f"{name}.out")

    def _logged(self, command: Sequence[str], log: str) -> None:
        path = self.root / "log" / log
        before = path.stat().st_size if path.exists() else 0
        with open(path, "ab") as file:
            status = subprocess.run(
                command, env=self.env, cwd=self.root, stdin=subprocess.DEVNULL, stdout=file, stderr=file, check=False
            )
        if status.returncode:
            said = path.read_bytes()[before:].decode(errors="replace")
            raise UserError(
                f"{command[0]} ended with status {status.returncode}", _complaint(said), f"read {self.root}/log"
            )

    def _pid(self, name: str) -> int | None:
        try:
            pid = int((self.root / "run" / f"{name}.pid").read_text())
        except (FileNotFoundError, ValueError):
            return None
        return pid if _alive(pid) else None

    def _until(self, what: str, true: Callable[[], bool], *, log: str, seconds: float = 90.0) -> None:
        deadline = time.monotonic() + seconds
        while not true():
            if time.monotonic() > deadline:
                raise UserError(f"{what}: not within {seconds:g} s", do=f"read {self.root}/log/{log}")
            time.sleep(0.05)


def _complaint(said: str, most: int = 2_000) -> str:
    """What a program said of its failure: the lines that speak of one, as some end with a page of general advice."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    trouble = [line for line in lines if re.search(r"error|warning|fatal|fail|cannot|can't|couldn't", line, re.I)]
    return "\n".join(trouble or lines)[-most:]


def free_port_base(first: int, last: int) -> int:
    """A `port_base` in this range whose controller port nobody holds. Below the ephemeral range (32768), so that no
    client takes one meanwhile.

    Raises:
        UserError: all are taken.
    """
    for base in range(first, last, 200):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", base + CONTROLLER))
            except OSError:
                continue
            return base
    raise UserError(f"no free block of ports from {first} to {last}", do="end another one-machine cluster first")


def _alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="A whole Slurm on one machine, to practise on.")
    parser.add_argument("action", choices=["up", "down"])
    parser.add_argument("dir", type=Path)
    parser.add_argument("--port-base", type=int, default=26_800)
    parser.add_argument("--no-accounting", action="store_true", help="without slurmdbd: there is no sacct then")
    args = parser.parse_args(argv)
    cluster = OneMachineSlurm(root=args.dir, port_base=args.port_base, accounting=not args.no_accounting)
    if args.action == "up":
        cluster.up()
        print(f"export SLURM_CONF={cluster.env['SLURM_CONF']}")
    else:
        cluster.down()
    return 0


if __name__ == "__main__":
    program(main)
