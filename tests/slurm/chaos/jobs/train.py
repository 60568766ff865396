"""In the place of jobs/train.py: steps with checkpoints and a log as real training leaves them, no model.

Inside a Ray of the allocation every step is a task on each device, so that a lost node, head or worker is felt.
"""

from __future__ import annotations

import argparse
import json
import os
import runpy
import time
from pathlib import Path

STEP_SECONDS = 1.0


def main() -> int:
    if "CHAOS_REAL" in os.environ:
        runpy.run_path(str(Path(__file__).parents[4] / "jobs" / "train.py"), run_name="__main__")
    parser = argparse.ArgumentParser()
    parser.add_argument("--config")
    parser.add_argument("--run-dir", type=Path)
    parser.add_argument("--preflight", action="store_true")
    parser.add_argument("--pool")
    parser.add_argument("overrides", nargs="*")
    args = parser.parse_args()
    if args.preflight:
        return 0
    from stateward.config import load_config
    from stateward.store import Stage
    from stateward.store.stage import write_json

    config = load_config(args.config, args.overrides)
    stage = Stage(args.run_dir, "train")
    stage.begin({"train": {"steps": config.train.steps}}, {"steps": config.train.steps})
    marks = [int(p.parent.name.rpartition("_")[2]) for p in stage.path.glob("checkpoints/global_step_*/VERIFIED")]
    work = _ray_work() if "STATEWARD_RAY_ADDRESS" in os.environ else lambda: time.sleep(STEP_SECONDS)
    for step in range(max(marks, default=0) + 1, config.train.steps + 1):
        work()
        write_json(stage.path / "checkpoints" / f"global_step_{step}" / "VERIFIED", {"step": step})
        with (stage.path / "metrics.jsonl").open("a") as log:
            log.write(json.dumps({"step": step, "time": time.time()}) + "\n")
    stage.done(steps=config.train.steps)
    return 0


def _ray_work():  # type: ignore[no-untyped-def]
    import ray

    ray.init(address=os.environ["STATEWARD_RAY_ADDRESS"], log_to_driver=False, logging_level="ERROR")
    devices = int(ray.cluster_resources().get("GPU", 0))

    @ray.remote(num_gpus=1, max_retries=0)
    def one() -> int:
        time.sleep(STEP_SECONDS)
        return 1

    def work() -> None:
        assert sum(ray.get([one.remote() for _ in range(devices)], timeout=120)) == devices

    return work


if __name__ == "__main__":
    raise SystemExit(main())
