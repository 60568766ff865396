"""Merge: the checkpoint of the last training step into one folder in Hugging Face format, compared with the base.

Reads RUN_DIR/train/checkpoints. Writes RUN_DIR/merged.
"""

from __future__ import annotations

from collections.abc import Sequence

from stateward.campaign.cli import DONE, configured, entry, stage_parser


def main(argv: Sequence[str] | None) -> int:
    parser = stage_parser(__doc__ or "")
    args = parser.parse_args(argv)
    config = configured(args)
    if args.dry_run:
        print(f"would merge the checkpoint of step {config.train.steps} in {config.run_dir}/train/checkpoints")
        print(f"base: {config.policy.model}; writes {config.run_dir}/merged")
        return DONE
    from stateward.campaign.layout import model_path
    from stateward.training.merge import merge

    merged = merge(config, config.run_dir, model=model_path(config))
    print(f"merge: {merged}")
    print(f"next: python jobs/evaluate.py --config {args.config} --run-dir {config.run_dir} --label tuned")
    return DONE


if __name__ == "__main__":
    entry(main)
