"""Run a sampling stage here, in the foreground, and finish it: its counts are printed and stand in its manifest."""

from __future__ import annotations

from typing import Any

from stateward.campaign.cli import DONE, INCOMPLETE
from stateward.campaign.sampling import SamplingPlan, missing_trials, run_shard, write_shards


def run_here(plan: SamplingPlan) -> int:
    """Run what is missing of the stage on this machine; exit status as in `stateward.campaign.cli`."""
    if plan.stage.is_done(plan.inputs()):
        print(f"{plan.name}: already done with these inputs; {counts_line(plan.stage.manifest['counts'])}")
        return DONE
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
