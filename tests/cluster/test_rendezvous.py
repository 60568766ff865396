"""How the ranks of a step find each other, with real threads and a real folder."""

from __future__ import annotations

import dataclasses
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from stateward.cluster.rendezvous import NodeReport, Rendezvous, check_reports
from stateward.errors import SystemFault


def node(rank: int, **changes: object) -> NodeReport:
    report = NodeReport(
        rank=rank,
        name=f"n{rank}",
        address=f"10.0.0.{rank}",
        cpus=4,
        memory_mb=100,
        devices=["0", "1"],
        canary="c",
        scratch_free_mb=1,
        withheld=[],
    )
    return dataclasses.replace(report, **changes)  # type: ignore[arg-type]


def test_every_rank_sees_every_report(tmp_path: Path) -> None:
    def rank(number: int) -> list[NodeReport]:
        meeting = Rendezvous(tmp_path / "m", rank=number, size=3, deadline_seconds=30)
        if number == 0:
            meeting.open()
        meeting.report(node(number, canary=meeting.canary()))
        return meeting.reports()

    with ThreadPoolExecutor(3) as pool:
        seen = list(pool.map(rank, [2, 1, 0]))
    assert [[n.rank for n in reports] for reports in seen] == [[0, 1, 2]] * 3
    assert check_reports(seen[0], seen[0][0].canary) == []
    assert (tmp_path / "m" / "ray-token").stat().st_mode & 0o777 == 0o600


def test_a_missing_rank_is_named_when_the_deadline_passes(tmp_path: Path) -> None:
    meeting = Rendezvous(tmp_path, rank=0, size=3, deadline_seconds=0.3)
    meeting.open()
    meeting.report(node(0))
    meeting.report(node(2))
    with pytest.raises(SystemFault, match="no report of rank 1"):
        meeting.reports()


def test_a_rank_that_gives_up_ends_the_others_wait_at_once(tmp_path: Path) -> None:
    meeting = Rendezvous(tmp_path, rank=0, size=2, deadline_seconds=300)
    meeting.open()
    assert meeting.given_up() == ""
    Rendezvous(tmp_path, rank=1, size=2, deadline_seconds=300).give_up("gpu1", "no device")
    assert meeting.given_up() == "rank 1 on gpu1 gave up: no device"
    with pytest.raises(SystemFault, match="rank 1 on gpu1 gave up: no device"):
        meeting.reports()


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"canary": "old"}, "does not see the shared folder"),
        ({"devices": ["0", "0"]}, "the same device twice"),
        ({"withheld": ["may run on 1 of 96 allocated cores"]}, "n1 (rank 1) may run on 1 of 96 allocated cores"),
        ({"address": "10.0.0.0"}, "the same address 10.0.0.0: set network_interface"),
    ],
)
def test_what_is_wrong_is_said_with_the_nodes_name(changes: dict[str, object], problem: str) -> None:
    (text,) = check_reports([node(0), node(1, **changes)], "c")
    assert problem in text
    assert "n1" in text


def test_ranks_leave_together(tmp_path: Path) -> None:
    ranks = [Rendezvous(tmp_path, rank=rank, size=3, deadline_seconds=30) for rank in range(3)]
    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(lambda rank: rank.leave(30), ranks)) == [True] * 3


def test_a_rank_that_never_leaves_is_not_waited_for_long(tmp_path: Path) -> None:
    assert not Rendezvous(tmp_path, rank=0, size=2, deadline_seconds=30).leave(0.1)
