"""Merge: the checkpoint of the last training step into one folder in Hugging Face format, compared with the base.

Reads RUN_DIR/train/checkpoints. Writes RUN_DIR/merged. With --seeds N, the same for each of RUN_DIR/seeds/K.
"""

from __future__ import annotations

from collections.abc import Sequence

from stateward.campaign.cli import DONE, configured, entry, stage_parser


def main(argv: Sequence[str] | None) -> int:
    parser = stage_parser(__doc__ or "")
    parser.add_argument("--seeds", type=int, default=1, metavar="N", help="merge the N trainings of jobs/train.py")
    args = parser.parse_args(argv)
    config = configured(args)
    from stateward.training.seeds import seed_runs

    if args.dry_run:
        for run in seed_runs(config, args.seeds):
            print(f"would merge the checkpoint of step {config.train.steps} in {run.run_dir}/train/checkpoints")
            print(f"base: {config.policy.model}; writes {run.run_dir}/merged")
        return DONE
    from stateward.campaign.layout import model_path
    from stateward.training.merge import merge

    shared = f"python jobs/evaluate.py --config {args.config} --run-dir {config.run_dir}"
    for run in seed_runs(config, args.seeds):
        merged = merge(run.config, run.run_dir, model=model_path(config))
        print(f"merge: {merged}")
        of_seed = f" --model {merged}" if args.seeds > 1 else ""
        print(f"next: {shared} --label {run.label}{of_seed}")
    return DONE


if __name__ == "__main__":
    entry(main)
