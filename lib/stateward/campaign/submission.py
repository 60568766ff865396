"""Submit a campaign's chain, or print what would be submitted: the plan as a table first, with GPU hours at most."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from stateward.campaign.chain import RUN_SHARD, Chain
from stateward.campaign.layout import model_path
from stateward.campaign.link import Link
from stateward.campaign.sampling import plan_evaluation, plan_probe
from stateward.cluster.arrays import pack, seconds_of
from stateward.cluster.directives import sbatch_lines
from stateward.cluster.profile import ClusterProfile, role_directives
from stateward.cluster.scheduler import require_client
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
) -> int:
    """Submit what is neither done nor queued; call it again at any time. `dry_run` touches nothing.

    Args:
        shards: array tasks of each sampling stage. seeds: trainings of the same pool.

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
        for link in links:
            if not link.done:
                print("\n" + "\n".join(_preview(chain, link)))
        return 0
    require_client("sbatch")  # before anything is written
    chain.submit(links, {"probe": probe, "base": base}, shards)
    width = max(len(link.name) for link in links)
    for link in links:
        print(f"{link.name:<{width}}  {'done' if link.done else 'job ' + ', '.join(link.jobs)}")
    print(f"next: python jobs/status.py {config.run_dir} --watch; call this again to continue a chain that broke")
    return 0


def _preview(chain: Chain, link: Link) -> list[str]:
    """What would be submitted for one link; names stand where ids of jobs will be."""
    edges = [
        f"{kind}:<{name}>" for kind, names in (("afterok", link.needs), ("afterany", link.continues)) for name in names
    ]
    if link.kind != "array":
        return [f"── {link.name}.sh", chain.script(link, ",".join(edges)).rstrip()]
    lines = [f"── {link.name}: an array of {RUN_SHARD} over"]
    lines += [f"#   {' '.join(files)}" for files in pack(link.shards, chain.profile.max_array_tasks)]
    if edges:
        lines.append(f"#SBATCH --dependency={','.join(edges)}")
    return [*lines, *sbatch_lines(role_directives(chain.profile, link.role))]


def table(links: Sequence[Link], profile: ClusterProfile) -> list[str]:
    """The plan, one line a link: what it waits for, its shape, and the most GPU hours that it can take."""
    rows = [("link", "kind", "waits for", "shape", "GPU hours at most")]
    total = 0.0
    for link in links:
        hours = 0.0 if link.done else link.gpu_hours(profile.max_array_tasks, seconds_of(link.role.time))
        total += hours
        any_end = [f"{', '.join(link.continues)} (any end)"] if link.continues else []
        waits = ", ".join([*link.needs, *any_end])
        kind, shape = "done" if link.done else link.kind, link.shape(profile.max_array_tasks)
        rows.append((link.name, kind, waits or "-", shape, f"{hours:.1f}"))
    rows.append(("", "", "", "total", f"{total:.1f}"))
    widths = [max(len(row[i]) for row in rows) for i in range(5)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
