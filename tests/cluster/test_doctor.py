"""How many jobs a campaign queues, against what a user may queue; tests/slurm asks a real cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from stateward.cluster.cluster_facts import Association, ClusterFacts
from stateward.cluster.doctor import _accounting
from stateward.cluster.finding import Finding
from stateward.cluster.profile import Role, load_profile

PRACTICE = Path(__file__).parents[2] / "configs" / "cluster" / "practice.yaml"


def jobs_a_user(limit: int, seeds: int, tasks: int, *, simulator: bool = False) -> Finding:
    profile = load_profile(PRACTICE)
    profile.max_array_tasks = tasks
    profile.simulator = Role(partition="gpu") if simulator else None
    config = {"AccountingStorageType": "accounting_storage/slurmdbd", "AccountingStorageEnforce": "limits"}
    associations = [Association(account="a", max_submit=limit)]
    facts = ClusterFacts(version="", name="", config=config, partitions={}, associations=associations)
    (found,) = (finding for finding in _accounting(profile, facts, seeds) if finding.what == "jobs a user")
    return found


@pytest.mark.parametrize(
    ("seeds", "simulator", "queued"),
    # Two arrays, curation and report; of each training an array, a merge, and the components of its job.
    [(1, False, 3 * 8 + 5), (1, True, 3 * 8 + 6), (4, False, 6 * 8 + 14), (4, True, 6 * 8 + 18)],
)
def test_a_chain_that_just_fits(seeds: int, simulator: bool, queued: int) -> None:
    assert jobs_a_user(queued, seeds, 8, simulator=simulator).state == "good"
    short = jobs_a_user(queued - 1, seeds, 8, simulator=simulator)
    assert (short.state, short.do) == ("bad", "set max_array_tasks to 7")
    assert f"{2 + seeds} arrays" in short.found
    assert jobs_a_user(queued, seeds, 0, simulator=simulator).state == "bad", "as many tasks as a stage has shards"


def test_where_no_chain_fits() -> None:
    assert "stage by stage" in jobs_a_user(20, 5, 4).do
