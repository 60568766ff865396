"""Run a sampling stage here or as an array, and finish it: its counts are printed and stand in its manifest."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from stateward.campaign.cli import DONE, INCOMPLETE, cluster_profile
from stateward.campaign.job_record import active_jobs, changes, note, settings_of_job, submitting
from stateward.campaign.mounts import mounts
from stateward.campaign.owed import missing_trials, owing, own_errors, require_one_start
from stateward.campaign.sample_array import sample_role
from stateward.campaign.sampling import RUN_SHARD, SamplingPlan, run_shard, write_shards
from stateward.cluster.scheduler import queue_or_none
from stateward.errors import UserError


def run_stage(plan: SamplingPlan, args: argparse.Namespace) -> int:
    """What the options ask for: run here, submit an array, or only finish. Exit status as in `cli`."""
    if plan.stage.is_done(plan.inputs()):
        print(f"{plan.name}: already done with these inputs; {counts_line(plan.stage.manifest['counts'])}")
        return DONE
    if args.finish:
        return finish(plan)
    return _run(plan, args)


def repair_stage(plan: SamplingPlan, args: argparse.Namespace) -> int:
    """Run the missing and void trials of a stage that was begun, also of one whose marker says that it is done: a
    shard may have been lost or damaged since. With ``--dry-run`` only list them.

    Raises:
        UserError: the stage was never begun, or with other inputs.
    """
    if not plan.stage.manifest:
        raise UserError(
            f"{plan.stage.path} was not begun", "there is nothing to repair", "leave --repair away to run the stage"
        )
    plan.stage.is_done(plan.inputs())  # refuses other inputs
    counts, owed = missing_trials(plan)
    print(f"{plan.name}: {counts_line(counts)}; {len(owed)} missing or void")
    if args.dry_run:
        print("\n".join(owed))
        return INCOMPLETE if owed else DONE
    (plan.stage.path / "DONE").unlink(missing_ok=True)
    return _run(plan, args) if owed else finish(plan)


def _run(plan: SamplingPlan, args: argparse.Namespace) -> int:
    """Run or submit the shards that still owe a trial."""
    plan.sampled.require()
    if args.array:
        return _submit(plan, args)
    _require_no_job(plan)
    for path in owing(write_shards(plan, shards=1), missing_trials(plan)[1]):
        run_shard(str(path))
    return finish(plan)


def _link(plan: SamplingPlan) -> str:
    """Name of the stage among the campaign's jobs."""
    return plan.name.removeprefix("eval/")


def _require_no_job(plan: SamplingPlan) -> None:
    """Raises UserError if a job runs this stage or will: it was planned for that job, and each trial is run once."""
    if jobs := active_jobs(Path(plan.config.run_dir), _link(plan), ask=queue_or_none):
        raise UserError(
            f"{plan.name}: job {', '.join(jobs)} is queued or running",
            "it runs these trials",
            f"let it end (jobs/status.py {plan.config.run_dir}), or scancel {' '.join(jobs)} and call this again",
        )


def finish(plan: SamplingPlan) -> int:
    """Write the stage's marker if every trial that is owed stands in the store; otherwise list what is missing."""
    plan.require_unchanged()
    counts, owed = missing_trials(plan)
    print(f"{plan.name}: {counts_line(counts)}")
    if plan.stage.shards.is_dir():
        require_one_start(plan)
    if owed:
        shown = ", ".join(owed[:5]) + (f" and {len(owed) - 5} more" if len(owed) > 5 else "")
        print(f"{plan.name}: {len(owed)} trials are missing or void: {shown}")
        print(f"{plan.name}: call this again to run only these; jobs/report.py --trial UID:INDEX shows a void's cause")
        if errors := own_errors(plan):
            print(f"{plan.name}: {errors} are void by their check's own error and will be again: mend the check")
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
    from stateward.cluster.scheduler import require_cluster

    profile = cluster_profile(args)
    role = sample_role(plan.config, plan.sampled.devices, profile)
    require_cluster()  # before a plan is written
    run_dir, link = Path(plan.config.run_dir), _link(plan)
    settings = settings_of_job(plan.config, profile)
    with submitting(run_dir):
        # What queued and running tasks read is left as it is planned.
        if jobs := active_jobs(run_dir, link):
            print(f"{plan.name}: job {', '.join(jobs)} of an earlier call is queued or running; nothing was submitted")
            print("\n".join(f"    it has other settings: {line}" for line in changes(run_dir, link, settings)))
            print(f"next: python jobs/status.py {plan.config.run_dir}; scancel {' '.join(jobs)} to plan it anew")
            return DONE
        paths = owing(write_shards(plan, args.shards), missing_trials(plan)[1])
        if not paths:
            return finish(plan)
        jobs = submit_array(
            RUN_SHARD,
            paths,
            profile=profile,
            role=role,
            folder=plan.stage.path / "slurm",
            name=f"{plan.config.name}-{plan.name.replace('/', '-')}",
            binds=mounts(plan.config, args.config) if profile.container.image else (),
        )
        note(run_dir, link, jobs, settings)
    print(f"{plan.name}: {len(paths)} shards as array {', '.join(jobs)}; logs in {plan.stage.path}/slurm")
    print(f"next: python jobs/status.py {plan.config.run_dir}; when they ended, this command with --finish")
    return DONE
