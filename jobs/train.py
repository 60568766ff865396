"""Train: GRPO with Verl on the curated pool, up to train.steps steps; goes on from the last verified checkpoint.

Reads RUN_DIR/pool/train.yaml (jobs/curate.py writes it). Writes RUN_DIR/train: checkpoints, metrics.jsonl, every
episode, logs. With --seeds N, N trainings that differ in their seed alone, each in RUN_DIR/seeds/K. --dry-run prints
what Verl would be told, with the reason for every setting. --submit hands the heterogeneous job of sbatch/train_q38.sh
to Slurm, rendered from a cluster profile; with --dry-run it is printed.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from stateward.campaign.cli import DONE, cluster_options, cluster_profile, configured, entry, stage_parser
from stateward.config import Config
from stateward.errors import UserError


def main(argv: Sequence[str] | None) -> int:
    parser = stage_parser(__doc__ or "")
    parser.add_argument("--pool", metavar="FILE", help="selector list to train on (default: RUN_DIR/pool/train.yaml)")
    parser.add_argument("--seeds", type=int, default=1, metavar="N", help="train N times with different seeds")
    parser.add_argument("--submit", action="store_true", help="submit as a heterogeneous Slurm job; needs --cluster")
    cluster_options(parser, "a profile: configs/cluster/NAME.yaml, or a file")
    parser.add_argument("--preflight", action="store_true", help="ask the endpoints that episodes need, and end")
    args = parser.parse_args(argv)
    config = configured(args)
    if args.preflight:
        from stateward.campaign.endpoints import check_endpoints
        from stateward.training.layout import resolve_layout

        resolve_layout(config)
        found = check_endpoints(config.episode, simulator_seconds=config.simulator.startup_seconds)
        print("\n".join(found or ["no endpoint is needed"]), flush=True)
        return DONE
    if args.submit:
        return _submit(args, config)
    if args.dry_run:
        from stateward.campaign.layout import PRACTICE
        from stateward.config.simulator import require_simulator
        from stateward.practice.policy import SHIPPED
        from stateward.training.plan import plan_training
        from stateward.training.seeds import require_seeds

        require_simulator(config)
        require_seeds(args.seeds)
        named = SHIPPED if config.policy.model == PRACTICE else Path(config.policy.model)
        print("\n".join(plan_training(config, config.run_dir, named).lines()))
        return DONE
    from stateward.campaign.layout import RunDir, model_path, selected_tasks
    from stateward.cluster.services.simulator import simulator_here
    from stateward.policy import policy_fingerprint
    from stateward.training.ray_local import ray_of_allocation
    from stateward.training.run import train
    from stateward.training.seeds import seed_runs

    model = model_path(config)
    pool_file = Path(args.pool) if args.pool else RunDir(Path(config.run_dir)).pool / "train.yaml"
    if not (args.pool or pool_file.is_file()):
        raise UserError(
            f"{pool_file} is not there", "it lists the tasks to train on", "run jobs/probe.py and jobs/curate.py"
        )
    pool = selected_tasks(config, str(pool_file))
    policy_id = policy_fingerprint(model, (config.policy.tool_parser, config.policy.reasoning_parser))
    # In a job of its own component the model is there already.
    with simulator_here(
        config, beside=config.train.gpus_per_node, log=Path(config.run_dir) / "train" / "simulator.log"
    ):
        for run in seed_runs(config, args.seeds):
            result = train(
                run.config,
                run.run_dir,
                model=model,
                policy_id=policy_id,
                pool=pool,
                evidence=pool_file.with_name("contamination.json"),
                ray_node=ray_of_allocation(os.environ),
            )
            print(f"train: {result.steps} steps (from step {result.resumed_from}); {result.checkpoint}", flush=True)
    seeds = f" --seeds {args.seeds}" if args.seeds > 1 else ""
    print(f"next: python jobs/merge.py --config {args.config} --run-dir {config.run_dir}{seeds}")
    return DONE


def _submit(args: argparse.Namespace, config: Config) -> int:
    from stateward.campaign.by_hand import log_of, submit_once, training_script

    if args.seeds > 1 or args.pool:
        raise UserError(
            "--submit with --seeds or --pool",
            "a job trains once, on the run directory's pool",
            "python jobs/pipeline.py --cluster NAME --seeds N submits a job a seed",
        )
    profile = cluster_profile(args)
    if args.dry_run:
        print(training_script(args.config, config, profile, args.overrides), end="")
        return DONE
    script = training_script(args.config, config, profile, args.overrides, log_of(config, "train"))
    job, lines = submit_once("train", script, config, profile)
    print("\n".join(lines))
    print(
        f"next: python jobs/merge.py --config {args.config} --run-dir {config.run_dir} --after {job} "
        f"--cluster {args.cluster}"
    )
    return DONE


if __name__ == "__main__":
    entry(main)
