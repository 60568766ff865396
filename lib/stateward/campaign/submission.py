"""Submit a campaign's chain, or print what would be submitted: the plan as a table first, with GPU hours at most."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from stateward.campaign.chain import Chain
from stateward.campaign.layout import model_path
from stateward.campaign.preview import preview, table
from stateward.campaign.sampling import plan_evaluation, plan_probe
from stateward.cluster.profile import ClusterProfile
from stateward.cluster.scheduler import require_cluster
from stateward.config import Config
from stateward.training.layout import resolve_layout


def submit_campaign(
    config: Config,
    config_file: str,
    overrides: Sequence[str],
    profile: ClusterProfile,
    shards: int,
    *,
    seeds: int = 1,
    dry_run: bool,
    resubmit: Sequence[str] = (),
) -> int:
    """Submit what is neither done nor queued; call it again at any time. `dry_run` touches nothing.

    Args:
        shards: array tasks of each sampling stage. seeds: trainings of the same pool.
        resubmit: links whose queued or running jobs are cancelled and submitted anew.

    Raises:
        UserError: something that must hold before the first job does not, or Slurm refused.
    """
    resolve_layout(config)  # a step that does not fit its devices is told now, not when they are allocated
    # Jobs start elsewhere: every path in the plans is absolute.
    config.run_dir = str(Path(config.run_dir).resolve())
    probe, base = plan_probe(config), plan_evaluation(config, "base", model_path(config))
    chain = Chain(config, config_file, profile, overrides)
    links = chain.links(probe, base, shards, seeds)
    print("\n".join(table(links, profile)))
    if dry_run:
        print("\n".join(preview(chain, links)))
        return 0
    require_cluster()  # before anything is written
    chain.submit(links, {"probe": probe, "base": base}, shards, resubmit)
    width = max(len(link.name) for link in links)
    for link in links:
        print(f"{link.name:<{width}}  {'done' if link.done else 'job ' + ', '.join(link.jobs)}")
    for link in links:
        if link.changed:
            # An array's plan is written when it is submitted; every other job reads the file.
            does = "keeps its plan" if link.kind == "array" else "reads its configuration when it starts"
            print(f"{link.name}: job {', '.join(link.jobs)} {does}; changed since it was submitted:")
            print("\n".join(f"    {line}" for line in link.changed))
            print(f"    to submit it anew with the new ones, add --resubmit {link.name}")
    print(f"next: python jobs/status.py {config.run_dir} --watch; call this again to continue a chain that broke")
    return 0
