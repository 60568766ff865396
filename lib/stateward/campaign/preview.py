"""A chain as text before anything is submitted: its table, then every job and array in full.

Of trainings that stand alike the first is written out, and of the last what differs from it: they differ in their
number alone, and there may be many.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace

from stateward.campaign.chain import Chain
from stateward.campaign.link import Link
from stateward.campaign.sampling import RUN_SHARD
from stateward.cluster.arrays import pack
from stateward.cluster.directives import sbatch_lines, seconds_of
from stateward.cluster.profile import ClusterProfile, role_directives

#: So many of a kind stand side by side; of more the first two and the last.
_AT_MOST = 4


def table(links: Sequence[Link], profile: ClusterProfile) -> list[str]:
    """The plan, one line a link: what it waits for, its shape, and the most GPU hours that it can take. After the first
    of more than two trainings that stand alike the others have one line together."""
    rows = [("link", "kind", "waits for", "shape", "GPU hours at most")]
    others = {number: run[1:] for run in _alike(links, profile) if len(run) > 2 for number in run[1:]}
    for group, members in itertools.groupby(links, lambda link: others.get(link.training) or link.name):
        together = list(members)
        if isinstance(group, str):
            rows += [_row(link, profile) for link in together]
        else:
            name, hours = f"seeds {group[0]} to {group[-1]}", _hours(together, profile)
            rows.append((name, f"{len(group)} ×", f"as seed {group[0] - 1}", "", f"{hours:.1f}"))
    rows.append(("", "", "", "total", f"{_hours(links, profile):.1f}"))
    widths = [max(len(row[i]) for row in rows) for i in range(5)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def preview(chain: Chain, links: Sequence[Link]) -> Iterator[str]:
    """The lines of what would be submitted; names stand where ids of jobs will be."""
    ends = {run[-1]: run for run in _alike(links, chain.profile) if len(run) > 1}
    between = {number for run in ends.values() for number in run[1:-1]}
    by_name = {link.name: link for link in links}
    for link in links:
        if link.done or link.training in between:
            continue
        heading, lines = _title(link), _lines(chain, link)
        if run := ends.get(link.training):
            first = by_name[link.name.removesuffix(str(run[-1])) + str(run[0])]
            same = itertools.zip_longest(lines, _lines(chain, first))
            lines = [line for line, before in same if line not in (None, before)]
            heading += f": as {_title(first)} but for these lines"
            heading += f"; those of seeds {run[1]} to {run[-2]} likewise" if len(run) > 2 else ""
        elif link.kind == "array":
            heading += f": an array of {RUN_SHARD} over"
        yield from ("", f"── {heading}", *lines)


def _title(link: Link) -> str:
    return link.name if link.kind == "array" else f"{link.name}.sh"


def _alike(links: Sequence[Link], profile: ClusterProfile) -> list[list[int]]:
    """Numbers of the trainings, those together that follow one another and stand alike."""
    states: dict[int, list[object]] = {}
    for link in links:
        if link.training:
            states.setdefault(link.training, []).append((link.kind, link.done, link.shape(profile.max_array_tasks)))
    return [[number for number, _ in run] for _, run in itertools.groupby(states.items(), lambda item: item[1])]


def _row(link: Link, profile: ClusterProfile) -> tuple[str, str, str, str, str]:
    any_end = [f"{', '.join(_some(link.continues))} (any end)"] if link.continues else []
    waits = ", ".join([*link.needs, *any_end])
    kind, shape = "done" if link.done else link.kind, link.shape(profile.max_array_tasks)
    return link.name, kind, waits or "-", shape, f"{_hours([link], profile):.1f}"


def _hours(links: Sequence[Link], profile: ClusterProfile) -> float:
    return sum(link.gpu_hours(profile.max_array_tasks, seconds_of(link.role.time)) for link in links if not link.done)


def _lines(chain: Chain, link: Link) -> list[str]:
    """What would be submitted for one link."""
    edges = [f"afterok:<{name}>" for name in link.needs]
    edges += _some([f"afterany:<{name}>" for name in link.continues])
    if link.kind != "array":
        if len(link.commands) > _AT_MOST:
            more = ["...", str(len(link.commands) - _AT_MOST), "more", "..."]
            link = replace(link, commands=[*link.commands[:2], more, *link.commands[-2:]])
        return chain.script(link, ",".join(edges)).rstrip().splitlines()
    lines = [f"#   {' '.join(files)}" for files in pack(link.shards, chain.profile.max_array_tasks)]
    if edges:
        lines.append(f"#SBATCH --dependency={','.join(edges)}")
    return [*lines, *sbatch_lines(role_directives(chain.profile, link.role))]


def _some(names: Sequence[str]) -> list[str]:
    if len(names) <= _AT_MOST:
        return list(names)
    return [*names[:2], f"... {len(names) - 3} more ...", names[-1]]
