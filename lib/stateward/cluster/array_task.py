"""One task of an array, on its node: its call is read from the array's file, and submitit runs it.

    srun python -m stateward.cluster.array_task FOLDER ARRAY.json

submitit has the submitter pickle a file for each task, and each task wait for its own. Here a task makes its pickle
itself when it first starts, so that a submission costs the same for any number of tasks and the file is always there.
From then on the pickle is submitit's: it holds how many time-outs are left, over every requeue.

SIGTERM is an order to stop: what runs is dropped without a record, and the task comes back if Slurm puts it back.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from submitit import JobEnvironment
from submitit.core.submission import process_job
from submitit.core.utils import DelayedSubmission

from stateward.cluster import interrupts
from stateward.cluster.limits import withheld
from stateward.cluster.node import allocated
from stateward.cluster.requeue import prepare, put_back
from stateward.cluster.shard_call import ShardCall
from stateward.errors import SystemFault
from stateward.store.durable import move_into_place


def main(folder: Path, array: Path) -> int:
    """Run the task that Slurm's variables name; the exit status.

    Args:
        folder: of submitit's files and logs.
        array: the submission's JSON, as `stateward.cluster.arrays` writes it.

    Raises:
        SystemFault: the task may not use all that the job was allocated on this node.
    """
    os.environ["SUBMITIT_FOLDER"] = str(folder)  # where JobEnvironment looks for its paths
    job = JobEnvironment()
    pickle: Path = job.paths.submitted_pickle
    try:
        interrupts.listen()
        if problems := withheld(*allocated(os.environ)[:2]):
            raise SystemFault("cluster", f"{os.environ['SLURMD_NODENAME']} {'; '.join(problems)}")
        prepare(job.paths)
        if not pickle.exists():
            _write_call(pickle, json.loads(array.read_text()), int(job.array_task_id))
        process_job(folder)
    except KeyboardInterrupt:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        print("told to stop; what was running is dropped, and another start goes on from the journal", flush=True)
        put_back(job.job_id)
        return 128 + signal.SIGTERM
    return 0


def _write_call(pickle: Path, array: dict[str, Any], task: int) -> None:
    call = DelayedSubmission(ShardCall(), array["function"], array["tasks"][task])
    call.set_timeout(array["minutes"], array["timeouts"])
    # A task that is killed here, or loses its node, must not leave half a file to its next start.
    temporary = pickle.with_name(f".{pickle.name}.{os.getpid()}")
    call.dump(temporary)
    move_into_place(temporary, pickle)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
