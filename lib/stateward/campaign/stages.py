"""Run a sampling stage here or as an array, and finish it: its counts are printed and stand in its manifest."""

from __future__ import annotations

import argparse
from typing import Any

from stateward.campaign.cli import DONE, INCOMPLETE, profile_path
from stateward.campaign.sampling import SamplingPlan, missing_trials, run_shard, write_shards


def run_stage(plan: SamplingPlan, args: argparse.Namespace) -> int:
    """What the options ask for: run here, submit an array, or only finish. Exit status as in `cli`."""
    if plan.stage.is_done(plan.inputs()):
        print(f"{plan.name}: already done with these inputs; {counts_line(plan.stage.manifest['counts'])}")
        return DONE
    if args.finish:
        return finish(plan)
    if args.array:
        return _submit(plan, args)
    paths = write_shards(plan, shards=1)
    if missing_trials(plan)[1]:
        for path in paths:
            run_shard(str(path))
    return finish(plan)


def finish(plan: SamplingPlan) -> int:
    """Write the stage's marker if every trial that is owed stands in the store; otherwise list what is missing."""
    counts, owed = missing_trials(plan)
    print(f"{plan.name}: {counts_line(counts)}")
    if owed:
        shown = ", ".join(owed[:5]) + (f" and {len(owed) - 5} more" if len(owed) > 5 else "")
        print(f"{plan.name}: {len(owed)} trials are missing or void: {shown}")
        print(f"{plan.name}: call this again to run only these; jobs/report.py --trial UID:INDEX shows a void's cause")
        return INCOMPLETE
    plan.stage.done(counts=counts)
    return DONE


def counts_line(counts: dict[str, Any]) -> str:
    """The counts that stand beside every figure."""
    text = (
        f"{counts['stored']} of {counts['planned']} trials stored:"
        f" {counts['passes']} passed, {counts['fails']} failed, {counts['voids']} void"
    )
    return text + (f"; {counts['saved']} not needed" if counts["saved"] else "")


def _submit(plan: SamplingPlan, args: argparse.Namespace) -> int:
    from stateward.cluster.arrays import submit_array
    from stateward.cluster.profile import load_profile

    profile = load_profile(profile_path(args.cluster))
    paths = write_shards(plan, args.shards)
    jobs = submit_array(
        "stateward.campaign.sampling:run_shard",
        paths,
        profile=profile,
        role=profile.sample,
        folder=plan.stage.path / "slurm",
        name=f"{plan.config.name}-{plan.name.replace('/', '-')}",
    )
    print(f"{plan.name}: {len(paths)} shards as array {', '.join(jobs)}; logs in {plan.stage.path}/slurm")
    print(f"next: python jobs/status.py {plan.config.run_dir}; when they ended, this command with --finish")
    return DONE
