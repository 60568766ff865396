"""Probe: run the base policy several times on every training task, until each task's difficulty is decided.

Runs here, in the foreground, or with --array as a Slurm array; both continue where an earlier call stopped.
Writes RUN_DIR/probe.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from stateward.campaign.cli import array_options, cluster_profile, configured, entry, stage_parser
from stateward.errors import UserError


def main(argv: Sequence[str] | None) -> int:
    parser = array_options(stage_parser(__doc__ or ""))
    parser.add_argument("--fixed", action="store_true", help="run all trials of every task; no early stop")
    parser.add_argument(
        "--evaluate-base", action="store_true", help="then evaluate the base policy, with the server that runs already"
    )
    parser.add_argument("--plan", action="store_true", help="print expected trials, GPU hours and the array's shape")
    parser.add_argument("--measured", type=Path, metavar="DIR", help="with --plan: a stage to take the cost from")
    parser.add_argument("--episode-seconds", type=float, default=60.0, metavar="S", help="with --plan: assumed (60)")
    args = parser.parse_args(argv)
    if args.fixed:
        args.overrides.append("probe.stop=fixed")
    if args.evaluate_base and (args.array or args.finish):
        raise UserError(
            "--evaluate-base with --array or --finish", "no server runs in this process", "submit jobs/evaluate.py"
        )
    config = configured(args)
    if args.dry_run or args.plan:
        from stateward.campaign.layout import selected_tasks
        from stateward.config.simulator import require_simulator
        from stateward.difficulty.plan import EpisodeCost
        from stateward.difficulty.plan import plan_probe as plan_cost

        require_simulator(config)
        tasks = selected_tasks(config, config.tasks.train)
        cost = EpisodeCost.measured(args.measured) if args.measured else EpisodeCost(seconds=args.episode_seconds)
        print("\n".join(plan_cost(config, len(tasks), cost, array_tasks=min(args.shards, len(tasks))).lines()))
        print(f"policy: {config.policy.model}; writes {config.run_dir}/probe")
        if args.array:
            from stateward.campaign.sample_array import array_line

            print(array_line(config, config.serve.devices, min(args.shards, len(tasks)), cluster_profile(args)))
        return 0
    from stateward.campaign.layout import model_path
    from stateward.campaign.sampling import plan_evaluation, plan_probe
    from stateward.campaign.stages import run_stage
    from stateward.cluster.services.vllm import keep_servers

    if args.evaluate_base:
        with keep_servers():
            status = run_stage(plan_probe(config), args)
            if status == 0:
                status = run_stage(plan_evaluation(config, "base", model_path(config)), args)
    else:
        status = run_stage(plan_probe(config), args)
    if status == 0 and not args.array:
        print(f"next: python jobs/curate.py --config {args.config} --run-dir {config.run_dir}")
    return status


if __name__ == "__main__":
    entry(main)
