"""The status of a campaign as text: stages, then the links of its chain, then the last words of what failed."""

from __future__ import annotations

import time
from pathlib import Path

from stateward.campaign.links import LinkState, breaks, link_states
from stateward.campaign.status import stage_states


def status_page(run_dir: Path) -> tuple[list[str], bool]:
    """Lines to print, and whether every stage is done."""
    stages = list(stage_states(run_dir))
    try:
        links = link_states(run_dir.resolve())
        unreadable = []
    except (OSError, ValueError) as error:
        links, unreadable = [], ["", f"the jobs of this campaign cannot be read: {error}"]
    lines = [f"{run_dir}  {time.strftime('%Y-%m-%d %H:%M:%S')}", ""]
    lines += _columns([(stage.name, stage.state, stage.detail) for stage in stages])
    if links:
        lines += ["", *_columns([(link.name, f"job {', '.join(link.jobs)}", *_words(link)) for link in links])]
        lines += _broken(links)
    lines += unreadable
    return lines, all(stage.state == "done" for stage in stages)


def _words(link: LinkState) -> tuple[str, str]:
    return link.state, link.detail


def _broken(links: list[LinkState]) -> list[str]:
    lines = []
    for link in links:
        for error in link.errors:
            lines += ["", f"{link.name}: {error}"]
    broken = breaks(links)
    if broken:
        lines.append("")
    for first, waiting in broken:
        behind = f"; what waits behind it does not start: {', '.join(waiting)}" if waiting else ""
        lines.append(f"the chain is broken at {first}{behind}")
    if broken:
        # Curation is a job of the pipeline's alone; without it jobs were submitted one by one.
        again = "jobs/pipeline.py" if any(link.name == "curate" for link in links) else "what submitted it"
        lines.append(f"next: call {again} again; it goes on")
    return lines


def _columns(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]) - 1)]
    return [
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]]).rstrip()
        for row in rows
    ]
