"""Evaluate: run a policy on every benchmark task, all trials. Writes RUN_DIR/eval/LABEL.

Label `base` is the configured checkpoint, a label of evaluate.endpoints is that API model, and any other label is
RUN_DIR/merged; --model names another checkpoint. Runs here, in the foreground, or with --array as a Slurm array.
Called again, it runs only trials that are absent or void. --repair does so even if the stage was once done, as when a
shard was lost since, and with --dry-run lists them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from stateward.campaign.cli import array_options, cluster_profile, configured, entry, stage_parser
from stateward.config import Config
from stateward.errors import UserError


def main(argv: Sequence[str] | None) -> int:
    parser = array_options(stage_parser(__doc__ or ""))
    parser.add_argument("--label", required=True, help="name of this evaluation: base, tuned, ...")
    parser.add_argument("--model", metavar="DIR", help="checkpoint to evaluate, in Hugging Face format")
    parser.add_argument("--repair", action="store_true", help="run the missing and void trials of a stage, done or not")
    parser.add_argument("--write-plan", action="store_true", help="write the array's plan and end; submit nothing")
    args = parser.parse_args(argv)
    config = configured(args)
    from stateward.campaign.layout import RunDir, require_label, selected_tasks
    from stateward.config.simulator import require_simulator

    if args.dry_run and not args.repair:
        require_label(args.label)
        require_simulator(config)
        tasks = selected_tasks(config, config.tasks.benchmark)
        number = len(tasks) * config.evaluate.trials
        print(f"would evaluate {len(tasks)} tasks × {config.evaluate.trials} trials = {number} episodes")
        print(f"policy: {described(config, args.label, args.model)}")
        print(f"writes {RunDir(Path(config.run_dir)).eval(args.label)}")
        if args.array:
            from stateward.campaign.sample_array import array_line

            devices = 0 if args.label in config.evaluate.endpoints else config.serve.devices
            print(array_line(config, devices, min(args.shards, len(tasks)), cluster_profile(args)))
        return 0
    from stateward.campaign.sampling import plan_evaluation, write_shards
    from stateward.campaign.stages import repair_stage, run_stage

    plan = plan_evaluation(config, args.label, model_of(config, args.label, args.model))
    if args.write_plan:
        print(f"{plan.name}: planned in {len(write_shards(plan, args.shards))} shards")
        return 0
    status = repair_stage(plan, args) if args.repair else run_stage(plan, args)
    if status == 0 and not args.array:
        print(f"next: python jobs/report.py {config.run_dir}")
    return status


def described(config: Config, label: str, model: str | None) -> str:
    """The policy that a label stands for, in words; it need not be there yet."""
    if endpoint := config.evaluate.endpoints.get(label):
        return f"{endpoint.model} at {endpoint.base_url}"
    return model or (config.policy.model if label == "base" else f"{config.run_dir}/merged")


def model_of(config: Config, label: str, model: str | None) -> Path | None:
    """The checkpoint that a label stands for; None for an endpoint."""
    from stateward.campaign.layout import merged_model, model_path

    if label in config.evaluate.endpoints:
        if model:
            raise UserError(f"--model {model}: label {label} is an endpoint of evaluate.endpoints", do="choose one")
        return None
    if model:
        return Path(model)
    return model_path(config) if label == "base" else merged_model(config)


if __name__ == "__main__":
    entry(main)
