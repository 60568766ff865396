"""Merge: the checkpoint of the last training step into one folder in Hugging Face format, compared with the base.

Reads RUN_DIR/train/checkpoints. Writes RUN_DIR/merged. With --seeds N, the same for each of RUN_DIR/seeds/K. With
--after JOBID, the merge is a Slurm job that starts once that job has ended well.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from stateward.campaign.cli import DONE, cluster_options, cluster_profile, configured, entry, stage_parser
from stateward.config import Config
from stateward.errors import UserError


def main(argv: Sequence[str] | None) -> int:
    parser = stage_parser(__doc__ or "")
    parser.add_argument("--seeds", type=int, default=1, metavar="N", help="merge the N trainings of jobs/train.py")
    parser.add_argument("--after", metavar="JOBID", help="submit to Slurm, to start once this job has ended well")
    cluster_options(parser, "with --after: configs/cluster/NAME.yaml, or a file")
    args = parser.parse_args(argv)
    config = configured(args)
    if args.after:
        return _submit(args, config)
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


def _submit(args: argparse.Namespace, config: Config) -> int:
    from stateward.campaign.by_hand import log_of, merge_script, submit_once

    if args.seeds > 1:
        raise UserError("--after with --seeds", "a training job trains once", "submit a merge for each run directory")
    profile = cluster_profile(args)
    if args.dry_run:
        print(merge_script(args.config, config, profile, args.overrides, after=args.after), end="")
        return DONE
    script = merge_script(args.config, config, profile, args.overrides, args.after, log_of(config, "merge"))
    print("\n".join(submit_once("merge", script, config, profile)[1]))
    return DONE


if __name__ == "__main__":
    entry(main)
