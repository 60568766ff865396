"""The curation half of the benchmark: writes many probe rows, and curates them in a process of its own.

python -m stateward.difficulty.bench_rows FOLDER ROWS     # prints seconds and peak memory as JSON
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from stateward.config import Config
from stateward.difficulty.walk import POPULATION
from stateward.store import Stage
from stateward.store.shard import write_shard
from stateward.tasks.task import Check, ServerSpec, Task

ROWS = 1_000_000
TRIALS = 50  # a task
BENCHMARK = 507  # tasks of the published benchmark
SHARDS = 20


def write_rows(folder: Path, rows: int) -> None:
    """``rows.jsonl`` in `folder`, in the shape that another tool might write, shuffled over tasks."""
    folder.mkdir(parents=True)
    with open(folder / "rows.jsonl", "w", encoding="utf-8") as file:
        for index, uid, passed in _trials(rows):
            row = {"task": {"uid": uid}, "result": {"success": passed, "system_error": None}, "trial": index}
            file.write(json.dumps(row) + "\n")


def write_records(folder: Path, rows: int) -> None:
    """A probe stage of `SHARDS` sealed shards in `folder`."""
    stage = Stage(folder, "probe")
    stage.begin({}, {"trials": TRIALS, "stop_rule": "fixed"})
    held: list[list[dict[str, Any]]] = [[] for _ in range(SHARDS)]
    for index, uid, passed in _trials(rows):
        held[int(uid[-5:]) % SHARDS].append(
            {
                "trial": {"uid": uid, "index": index, "policy": "0123456789abcdef", "settings": "fedcba9876543210"},
                "outcome": "pass" if passed else "fail",
                "reward": float(passed),
                "domain": _domain(uid),
                "started": 1e9 + index,
                "initial_state_hash": "0123456789abcdef",
            }
        )
    for number in range(SHARDS):
        write_shard(stage.shards / f"{number:04d}-00.h5", iter(held[number]))
        held[number] = []


def tasks_of(number: int, prefix: str) -> Iterator[Task]:
    """Tasks of five stock sentences and an identifier: pool and benchmark share nearly all their shingles."""
    stock = np.random.default_rng(1).integers(0, 900, (200, 9))
    chosen = np.random.default_rng(len(prefix)).integers(0, len(stock), (number, 5))
    for i in range(number):
        uid = f"{prefix}_{i % 40}.py:test_case_{i:05d}"
        name = uid.split(":")[1]
        sentences = (" ".join(f"word{w}" for w in stock[j]) for j in chosen[i])
        asserts = [f"assert desk['orders'] == [{i}]", "assert not desk['new']"]
        source = "\n    ".join([f"def {name}(t):", "desk = t.effects['desk']", *asserts]) + "\n"
        yield Task(
            uid=uid,
            domain=_domain(uid),
            system="Follow the policy of the desk.",
            query=f"Hello, this is about {prefix}-{i}. " + ". ".join(sentences),
            world={"desk": {"orders": [uid, i]}},
            servers=(ServerSpec(name="desk"),),
            check=Check(file=uid.split(":")[0], function=name, source=source),
        )


def main(folder: Path, rows: int) -> int:
    """Curate what stands in `folder` and print the cost. Making the tasks is not counted."""
    from stateward.difficulty.curate import run

    source = folder / "rows.jsonl" if (folder / "rows.jsonl").exists() else folder / "probe"
    config = Config(name="bench", run_dir=str(folder / "run"))
    config.curate.fields.uid = "task.uid"
    config.curate.fields.success = "result.success"
    config.curate.fields.system_error = "result.system_error"
    config.curate.fields.trial = "trial"
    tasks, benchmark = list(tasks_of(_number(rows), "orders")), list(tasks_of(BENCHMARK, "held"))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    began, worked = time.perf_counter(), time.process_time()
    pool = run(config, [source], tasks=tasks, benchmark=benchmark)
    seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - worked
    tally = pool.tally()
    print(
        json.dumps(
            {
                "rows": pool.counts.rows,
                "tasks": tally["probed"],
                "selected": tally["tasks"]["train"],
                "seconds": seconds,
                "cpu_seconds": cpu_seconds,
                "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
                "peak_mb_before": before,
            }
        )
    )
    return 0


def _trials(rows: int) -> Iterator[tuple[int, str, bool]]:
    """(trial index, uid, passed), one trial of every task after the other."""
    number = _number(rows)
    random = np.random.default_rng(7)
    rates = random.beta(*POPULATION, size=number)
    uids = [task.uid for task in tasks_of(number, "orders")]
    for index in range(rows // number):
        passed = random.random(number) < rates
        for uid, ok in zip(uids, passed.tolist(), strict=True):
            yield index, uid, ok


def _number(rows: int) -> int:
    """Tasks among which `rows` are spread."""
    return max(rows // TRIALS, 1)


def _domain(uid: str) -> str:
    return uid.split(".")[0]


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2])))
