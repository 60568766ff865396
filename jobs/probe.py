"""Probe: run the base policy several times on every training task, until each task's difficulty is decided.

Runs here, in the foreground, and continues where it stopped. Writes RUN_DIR/probe.
"""

from __future__ import annotations

from collections.abc import Sequence

from stateward.campaign.cli import configured, entry, stage_parser


def main(argv: Sequence[str] | None) -> int:
    parser = stage_parser(__doc__ or "")
    parser.add_argument("--fixed", action="store_true", help="run all trials of every task; no early stop")
    args = parser.parse_args(argv)
    if args.fixed:
        args.overrides.append("probe.stop=fixed")
    config = configured(args)
    if args.dry_run:
        from stateward.campaign.layout import selected_tasks

        tasks = selected_tasks(config, config.tasks.train)
        print(
            f"would probe {len(tasks)} tasks up to {config.probe.trials} trials each (stop rule: {config.probe.stop})"
        )
        print(f"policy: {config.policy.model}; writes {config.run_dir}/probe")
        return 0
    from stateward.campaign.sampling import plan_probe
    from stateward.campaign.stages import run_here

    status = run_here(plan_probe(config))
    if status == 0:
        print(f"next: python jobs/curate.py --config {args.config} --run-dir {config.run_dir}")
    return status


if __name__ == "__main__":
    entry(main)
