"""The simulator's component of a training job: one node that serves the simulated user's and the judge's model.

    srun --het-group=2 python -m stateward.cluster.simulator_node --config C --rank 4 -- [arguments]

A step of its own, beside the one that trains. Once the server has given a completion, its address and key are left in
the file that ``STATEWARD_SIMULATOR`` names, in this start's rendezvous folder, where every node of the job finds them.
If the server cannot start, or is lost, that is said in the same folder as a rank says it that gives up, and the other
step ends with it. SIGTERM is the orderly end.
"""

from __future__ import annotations

import argparse
import os
import re
import select
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from stateward.cluster.node import StepRank, cache_environment, node_address, port_blocks, scratch_folder
from stateward.cluster.processes import adopt_orphans, stop_descendants
from stateward.cluster.rendezvous import Rendezvous
from stateward.cluster.services.vllm import VllmServer, log_tail, serve
from stateward.config import SimulatorConfig, load_config
from stateward.config.simulator import SIMULATOR, SIMULATOR_NAME, SimulatorAddress, simulator_model, write_address
from stateward.errors import SystemFault, UserError, program


class _Terminated(Exception):
    """SIGTERM: the job is over, or comes again."""


@dataclass(frozen=True, kw_only=True)
class SimulatorNode:
    """This node. `rank` goes on after the ranks of the training step; the address file lies in `address_file`."""

    step: StepRank
    rank: int
    address_file: Path
    interface: str
    scratch: str
    began: float = field(default_factory=lambda: float(os.environ.get("STATEWARD_JOB_BEGAN") or time.time()))

    def run(self, config: SimulatorConfig) -> int:
        """Serve until SIGTERM. The step's exit status.

        Raises:
            UserError: `config` names no checkpoint, or the node has no such interface. The other step was told.
        """
        adopt_orphans()
        signal.signal(signal.SIGTERM, _terminate)
        folder = self.address_file.parent
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            with ExitStack() as stack:
                scratch = stack.enter_context(scratch_folder(self.scratch, self.step.job, self.rank))
                stack.callback(stop_descendants)
                server = stack.enter_context(self._serve(config, scratch))
                address = SimulatorAddress(base_url=server.base_url, api_key=server.api_key)
                write_address(self.address_file, address)
                self.stamp(f"{config.model} at {server.base_url} completed after {server.startup_seconds:.1f} s")
                _wait_for_end(server)
        except _Terminated:
            self.stamp("the simulator ended")
            return 0
        except (SystemFault, UserError) as error:
            # The other step ends once it is told, and then the job ends this one; the status is to be its own.
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            # The first line alone: what a log said last differs from start to start, and the cause may be the same.
            cause = str(error).splitlines()[0]
            self.stamp(f"failed: {cause if isinstance(error, UserError) else error}")
            Rendezvous(folder, rank=self.rank, size=0, deadline_seconds=0).give_up(self.step.node, cause)
            if isinstance(error, UserError):
                raise
        return 1

    def stamp(self, text: str) -> None:
        """One line of the log, with seconds since the job began."""
        print(f"[{time.time() - self.began:7.1f} s] rank {self.rank} {self.step.node}: {text}", flush=True)

    def _serve(self, config: SimulatorConfig, scratch: Path) -> AbstractContextManager[VllmServer]:
        address = node_address(self.interface, self.rank)
        return serve(
            simulator_model(config),
            config,
            max_model_len=config.max_model_len,
            log=self.address_file.with_suffix(".log"),
            name=SIMULATOR_NAME,
            address=address,
            port=next(port_blocks(self.step.job, self.rank, address, self.step.restart))[0],
            environment=cache_environment(scratch),
        )


def is_override(word: str) -> bool:
    """Whether an argument of jobs/train.py is KEY=VALUE; an option is not, nor a path that is given to one."""
    return re.match(r"\w+(\.[\w-]+)*=", word) is not None


def _wait_for_end(server: VllmServer) -> None:
    """Until the server's process ends, which it must not by itself; SIGTERM ends the wait."""
    handle = os.pidfd_open(server.pid)
    try:
        select.select([handle], [], [])
    finally:
        os.close(handle)
    # The job may end just now; that must not cut the cleaning up short, nor be taken for what happened.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise SystemFault("cluster", f"the simulator's vLLM ended{log_tail(server.log)}")


def _terminate(number: int, frame: FrameType | None) -> None:
    # What failed is being cleaned up: that must not be cut short, and is what happened.
    error = sys.exception()
    while error is not None:
        if isinstance(error, SystemFault | UserError):
            return
        error = error.__context__
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it comes more than once, and must not end the cleaning up
    raise _Terminated


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", required=True, metavar="FILE", help="configuration, of which `simulator` counts")
    parser.add_argument("--rank", type=int, required=True, help="of this node among all of the job")
    parser.add_argument("--interface", default="", help="network interface; empty: the default route's")
    parser.add_argument("--scratch", default="/tmp", help="node-local folder with a short path")
    parser.add_argument("arguments", nargs="*", help="those of jobs/train.py; the overrides among them count")
    args = parser.parse_args(argv)
    if SIMULATOR not in os.environ:
        raise UserError(
            f"{SIMULATOR} is not set", "it says where the address is left", "the training job's script does"
        )
    node = SimulatorNode(
        step=StepRank.from_environment(os.environ),
        rank=args.rank,
        address_file=Path(os.environ[SIMULATOR]),
        interface=args.interface,
        scratch=args.scratch,
    )
    overrides = [word for word in args.arguments if is_override(word)]
    return node.run(load_config(args.config, overrides).simulator)


if __name__ == "__main__":
    program(main)
