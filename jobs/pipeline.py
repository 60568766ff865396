"""The whole campaign: probe → curate → train → merge → evaluate (base and tuned) → report.

Runs the stages here, one after the other, or with --cluster as Slurm jobs that depend on one another. May be
interrupted and called again at any time: finished stages are skipped and a part is continued.
"""

from __future__ import annotations

from collections.abc import Sequence

from stateward.campaign.cli import cluster_options, cluster_profile, configured, entry, stage_parser


def main(argv: Sequence[str] | None) -> int:
    parser = stage_parser(__doc__ or "")
    cluster_options(parser, "submit to Slurm: configs/cluster/NAME.yaml, or a file")
    parser.add_argument("--shards", type=int, metavar="N", help="shards of a sampling stage (default: serve.replicas)")
    parser.add_argument(
        "--seeds", type=int, default=1, metavar="N", help="train N times with different seeds, evaluate each"
    )
    parser.add_argument(
        "--resubmit", action="append", metavar="LINK", help="with --cluster: cancel this link's jobs and submit it anew"
    )
    args = parser.parse_args(argv)
    config = configured(args)
    if args.cluster:
        from stateward.campaign.submission import submit_campaign

        profile = cluster_profile(args)
        return submit_campaign(
            config,
            args.config,
            args.overrides,
            profile,
            args.shards,
            seeds=args.seeds,
            dry_run=args.dry_run,
            resubmit=args.resubmit or (),
        )
    from stateward.campaign.pipeline import plan_lines, run_steps, steps

    plan = steps(args.config, config, args.overrides, args.seeds)
    print(f"campaign {config.name!r}: {len(plan)} stages, run directory {config.run_dir}")
    if args.dry_run:
        print("\n".join(plan_lines(plan)))
        return 0
    return run_steps(plan)


if __name__ == "__main__":
    entry(main)
