"""Evaluate: run a policy on every benchmark task, all trials. Writes RUN_DIR/eval/LABEL.

Without --model, label `base` is the configured checkpoint and any other label is RUN_DIR/merged. Runs here, in the
foreground, or with --array as a Slurm array; only trials that are absent or void are run.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from stateward.campaign.cli import array_options, configured, entry, stage_parser


def main(argv: Sequence[str] | None) -> int:
    parser = array_options(stage_parser(__doc__ or ""))
    parser.add_argument("--label", required=True, help="name of this evaluation: base, tuned, ...")
    parser.add_argument("--model", metavar="DIR", help="checkpoint to evaluate, in Hugging Face format")
    parser.add_argument("--write-plan", action="store_true", help="write the array's plan and end; submit nothing")
    args = parser.parse_args(argv)
    config = configured(args)
    from stateward.campaign.layout import RunDir, merged_model, model_path, selected_tasks

    if args.dry_run:
        tasks = selected_tasks(config, config.tasks.benchmark)
        number = len(tasks) * config.evaluate.trials
        print(f"would evaluate {len(tasks)} tasks × {config.evaluate.trials} trials = {number} episodes")
        print(f"writes {RunDir(Path(config.run_dir)).eval(args.label)}")
        return 0
    from stateward.campaign.sampling import plan_evaluation, write_shards
    from stateward.campaign.stages import run_stage

    if args.model is None:
        model = model_path(config) if args.label == "base" else merged_model(config)
        args.model = str(model)
    plan = plan_evaluation(config, args.label, Path(args.model))
    if args.write_plan:
        print(f"{plan.name}: planned in {len(write_shards(plan, args.shards))} shards")
        return 0
    status = run_stage(plan, args)
    if status == 0 and not args.array:
        print(f"next: python jobs/report.py {config.run_dir}")
    return status


if __name__ == "__main__":
    entry(main)
