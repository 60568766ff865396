"""Ray inside one Slurm allocation: rank 0 is the head without GPUs, the other ranks are workers, then a driver runs.

    srun --het-group=0,1 python -m stateward.cluster.ray_cluster --shared DIR -- DRIVER ARGUMENTS...

Nothing is shared with any other Ray on these nodes: own folder, own block of ports, own token, an explicit address,
resources as Slurm allocated them. The driver's exit status is the step's. When a rank ends, everything that descends
from it is gone; nothing is found or killed by name.
"""

from __future__ import annotations

import argparse
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import FrameType

import psutil

from stateward.cluster.node import (
    StepRank,
    allocated,
    cache_environment,
    node_address,
    port_blocks,
    report_of,
    scratch_folder,
)
from stateward.cluster.processes import adopt_orphans, stop_descendants
from stateward.cluster.ray_command import CLIENT_SERVER, TYPESENSE, one_vendor, quiet_environment, start_command
from stateward.cluster.rendezvous import Rendezvous, check_reports, start_folder
from stateward.cluster.scheduler import try_client
from stateward.cluster.services.typesense import key_file, serve
from stateward.errors import SystemFault, UserError, program

#: The driver finds the cluster in these variables.
ADDRESS, NODES = "STATEWARD_RAY_ADDRESS", "STATEWARD_RAY_NODES"
_DAEMONS = ("gcs_server", "raylet")
_QUICK_FAILURES, _QUICK_SECONDS = 3, 20.0
#: Ray's daemons end within a second of SIGTERM. A cancelled job has KillWait, 30 s on most clusters.
_PATIENCE_SECONDS = 3.0
_GOODBYE_SECONDS = 10.0
_LATER_SECONDS = 15.0


class _Terminated(Exception):
    """SIGTERM: Slurm or the batch script ends the step."""


class RayRank:
    """One rank of the allocation, from its first report to its last process."""

    def __init__(
        self,
        step: StepRank,
        shared: Path,
        *,
        interface: str,
        scratch: str,
        deadline_seconds: float,
        preflight: bool = False,
        typesense: str = "",
    ) -> None:
        self.step, self.interface, self.scratch = step, interface, scratch
        self.preflight, self.typesense = preflight, typesense
        self.began = _job_start(os.environ)
        folder = start_folder(shared, os.environ)
        # Rank 0 knows who is missing, so it speaks first.
        deadline_seconds += _LATER_SECONDS if step.rank else 0.0
        self.meeting = Rendezvous(folder, rank=step.rank, size=step.size, deadline_seconds=deadline_seconds)
        self.env: dict[str, str] = {}
        self.address = ""

    def run(self, driver: Sequence[str]) -> int:
        """Join the cluster; on rank 0 also prove it and run `driver`. The step's exit status."""
        adopt_orphans()
        signal.signal(signal.SIGTERM, _terminate)
        try:
            with ExitStack() as stack:
                scratch = stack.enter_context(scratch_folder(self.scratch, self.step.job, self.step.rank))
                stack.callback(stop_descendants, patience=_PATIENCE_SECONDS)
                self._meet(scratch)
                status = self._head(driver, scratch, stack) if self.step.rank == 0 else self._worker(driver, scratch)
        except _Terminated:
            self.stamp("SIGTERM: ended")
            status = 128 + signal.SIGTERM
        except (SystemFault, UserError) as error:
            self.stamp(f"failed: {error}")
            self.meeting.give_up(self.step.node, str(error))
            # Not 2, which is never worth another start: what a node lacks (room in its scratch), another may have.
            status = 1
        # srun kills every rank once one has ended badly. So all clean up first, and then they end together.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if not self.meeting.leave(_GOODBYE_SECONDS):
            self.stamp("not all ranks said goodbye")
        return status

    def stamp(self, text: str) -> None:
        """One line of the log, with seconds since the job began."""
        print(f"[{time.time() - self.began:7.1f} s] rank {self.step.rank} {self.step.node}: {text}", flush=True)

    def _meet(self, scratch: Path) -> None:
        if self.step.rank == 0:
            self.meeting.open()
        canary = self.meeting.canary()
        self.address = node_address(self.interface, self.step.rank)
        self.env = {
            **one_vendor(os.environ),
            **cache_environment(scratch),
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(self.meeting.token),
            **quiet_environment(),
        }
        if self.interface and self.interface != "loopback":
            self.env |= {"NCCL_SOCKET_IFNAME": self.interface, "GLOO_SOCKET_IFNAME": self.interface}
        self.meeting.report(report_of(self.step, self.address, canary, scratch, os.environ))
        self.stamp(f"address {self.address}, scratch {scratch}")

    def _node_of(self, rank: int) -> str:
        """Name of a rank's node: one rank a node, in the order of the step's list. scontrol expands it by itself."""
        status, answer = try_client("scontrol", "show", "hostnames", os.environ.get("SLURM_STEP_NODELIST", ""))
        names = answer.split()
        return f"({names[rank]})" if status == 0 and len(names) == self.step.size else ""

    def _services(self, driver: Sequence[str], ports: range, stack: ExitStack) -> dict[str, str]:
        """Start what the job serves itself and ask for what others serve, before a device has work. For head.json.

        Raises:
            SystemFault: a service is not there; nothing was started on the devices.
        """
        found = {}
        if self.typesense:
            log = self.meeting.folder / "typesense.log"
            server = stack.enter_context(
                serve(self.meeting.folder, log=log, ports=ports[TYPESENSE], address=self.address, binary=self.typesense)
            )
            self.env |= server.environment()
            found["typesense"] = server.url
            self.stamp(f"Typesense at {server.url} answered a search after {server.startup_seconds:.1f} s")
        self._ask_endpoints(driver)
        return found

    def _ask_endpoints(self, driver: Sequence[str]) -> None:
        """Episodes run on the nodes with devices, and the judge and the user may answer one node and not another."""
        if not self.preflight:
            return
        if status := self._child([*driver, "--preflight"]):
            raise SystemFault(
                "cluster", f"on this node the driver's preflight ended with status {status}; see its lines above"
            )
        self.stamp("the endpoints answer")

    def _head(self, driver: Sequence[str], scratch: Path, stack: ExitStack) -> int:
        reports = self.meeting.reports(self._node_of)
        problems = check_reports(reports, self.meeting.canary())
        if problems:
            raise SystemFault("cluster", "; ".join(problems))
        self.stamp(f"{len(reports)} nodes see the shared folder")
        blocks = self._blocks()
        found = self._services(driver, next(blocks), stack)
        ports = self._start(scratch, blocks, ["--head", "--include-dashboard=false", "--no-monitor"], gpus=0)
        address = f"{self.address}:{ports[0]}"
        self.meeting.write("head.json", {"address": address, **found})
        self.stamp(f"Ray head at {address}")
        self.env |= {ADDRESS: address, NODES: str(self.step.size)}
        check = [sys.executable, "-m", "stateward.cluster.ray_check", address, str(self.step.size)]
        if status := self._child(check):
            raise SystemFault("cluster", f"the Ray cluster did not prove itself (status {status}); its lines are above")
        self.stamp("Ray is ready: nodes, devices and an all-reduce")
        status = self._child(driver)
        self.stamp(f"driver ended with status {status}")
        self.meeting.write("exit.json", {"status": status})
        return status

    def _worker(self, driver: Sequence[str], scratch: Path) -> int:
        head = self.meeting.read("head.json", "the head's address")
        if "typesense" in head:
            key = key_file(self.meeting.folder).read_text()
            self.env |= {"TYPESENSE_URL": head["typesense"], "TYPESENSE_API_KEY": key}
        if self.interface == "loopback" and self.step.rank > 1:
            # All "nodes" are this machine: side by side on few cores each would be too slow for Ray's half a minute.
            self.meeting.read(f"started-{self.step.rank - 1}.json", "the worker before")
        self._ask_endpoints(driver)
        gpus = len(allocated(os.environ)[2])
        self._start(scratch, self._blocks(), [f"--address={head['address']}"], gpus=gpus)
        self.meeting.write(f"started-{self.step.rank}.json", {})
        self.stamp(f"Ray worker with {gpus} devices")
        daemons = _daemons()
        ended = self.meeting.folder / "exit.json"
        while not ended.is_file():
            readable, _, _ = select.select(list(daemons), [], [], 0.5)
            if readable:
                raise SystemFault("cluster", f"Ray's {daemons[readable[0]]} on {self.step.node} ended")
            if self.meeting.given_up():
                return 1
        self.stamp("ended")
        return 0

    def _blocks(self) -> Iterator[range]:
        return port_blocks(self.step.job, self.step.rank, self.address, self.step.restart)

    def _start(self, scratch: Path, blocks: Iterator[range], arguments: list[str], *, gpus: int) -> range:
        """Start this rank's Ray daemons; the ports that they have. Each attempt takes another block of `blocks`."""
        # Ray gives its own daemons half a minute to register, which a crowded node may need twice.
        # So a start that was slow to fail is tried until the cluster must be ready; one that fails at once is wrong.
        quick = attempt = 0
        while quick < _QUICK_FAILURES and (attempt == 0 or self.meeting.left > 0):
            attempt += 1
            ports = next(blocks)
            command = start_command(self.address, ports, arguments, gpus=gpus, env=os.environ)
            if self.step.rank == 0:
                own = {"port": ports[0], "ray-client-server-port": ports[CLIENT_SERVER], "temp-dir": scratch}
                command += [f"--{name}={value}" for name, value in own.items()]
            began = time.monotonic()
            others = {child.pid for child in psutil.Process().children()}
            started = subprocess.run(command, env=self.env, stdin=subprocess.DEVNULL, capture_output=True, text=True)
            if started.returncode == 0:
                return ports
            stop_descendants(spare=others)
            quick += time.monotonic() - began < _QUICK_SECONDS
            last = "".join((started.stderr or started.stdout).strip().splitlines()[-1:])
            self.stamp(f"ray start ended with status {started.returncode} (attempt {attempt}): {last}")
        print(started.stdout, started.stderr, sep="\n", flush=True)
        raise SystemFault("cluster", f"ray start ended with status {started.returncode}: {last}")

    def _child(self, command: Sequence[str]) -> int:
        """Run a command beside the node's daemons; a daemon's end ends it."""
        process = subprocess.Popen(command, env=self.env, stdin=subprocess.DEVNULL)
        handle = os.pidfd_open(process.pid)
        daemons = _daemons()
        while True:
            readable, _, _ = select.select([handle, *daemons], [], [], 1.0)
            if handle in readable:
                os.close(handle)
                return _shell_status(process.wait())
            gone = [daemons[fd] for fd in readable]
            cause = f"Ray's {gone[0]} on {self.step.node} ended" if gone else self.meeting.given_up()
            if cause:
                process.terminate()
                raise SystemFault("cluster", cause)


def _daemons() -> dict[int, str]:
    """Handles of this rank's Ray daemons: readable once they have ended."""
    found = [p for p in psutil.Process().children(recursive=True) if p.name() in _DAEMONS]
    return {os.pidfd_open(p.pid): p.name() for p in found}


def _shell_status(code: int) -> int:
    return 128 - code if code < 0 else code


def _terminate(number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it comes more than once, and must not end the cleaning up
    raise _Terminated


def _job_start(env: dict[str, str] | os._Environ[str]) -> float:
    """When the job began, as the batch script noted it; Slurm's own variable is of 23.02 and whole seconds."""
    return float(env.get("STATEWARD_JOB_BEGAN") or env.get("SLURM_JOB_START_TIME") or time.time())


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shared", type=Path, required=True, help="folder that all nodes see")
    parser.add_argument("--interface", default="", help="network interface; empty: the default route's")
    parser.add_argument("--scratch", default="/tmp", help="node-local folder with a short path")
    parser.add_argument("--deadline", type=float, default=600.0, help="seconds until the cluster must be ready")
    parser.add_argument(
        "--preflight", action="store_true", help="on each node, run the driver with --preflight before Ray starts"
    )
    parser.add_argument("--typesense", default="", help="binary of its server, to be started on rank 0")
    parser.add_argument("driver", nargs="+", help="the command that runs once Ray is ready")
    args = parser.parse_args(argv)
    step = StepRank.from_environment(os.environ)
    rank = RayRank(
        step,
        args.shared,
        interface=args.interface,
        scratch=args.scratch,
        deadline_seconds=args.deadline,
        preflight=args.preflight,
        typesense=args.typesense,
    )
    return rank.run(args.driver)


if __name__ == "__main__":
    program(main)
