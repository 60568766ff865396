"""What the doctor reads from Slurm's words, and its lines; tests/slurm asks a real one."""

from __future__ import annotations

import pytest

from stateward.cluster.cluster_facts import ClusterFacts, NodeFacts, _gpus
from stateward.cluster.finding import bad, good, unknown


@pytest.mark.parametrize(
    ("gres", "expected"),
    [
        ("(null)", {}),
        ("gpu:8", {"": 8}),
        ("gpu:h100:8(S:0-1)", {"h100": 8}),
        ("gpu:a100:4,gpu:h100:2,nvme:1", {"a100": 4, "h100": 2}),
        ("craynetwork:4,gpu:nvidia_h100_80gb:8(S:0,2)", {"nvidia_h100_80gb": 8}),
    ],
)
def test_gpus_of_a_node(gres: str, expected: dict[str, int]) -> None:
    assert _gpus(gres) == expected


def test_gpus_of_any_type_count_where_the_profile_names_none() -> None:
    node = NodeFacts("n", 8, 1_000, {"a100": 4, "h100": 2})
    assert (node.gpus_of(""), node.gpus_of("h100"), node.gpus_of("b200")) == (6, 2, 0)


@pytest.mark.parametrize(
    ("enforced", "associations", "limits"),
    [("none", False, False), ("associations", True, False), ("associations,limits,qos", True, True)],
)
def test_what_accounting_enforces(enforced: str, associations: bool, limits: bool) -> None:
    config = {"AccountingStorageEnforce": enforced}
    facts = ClusterFacts(version="", name="", config=config, partitions={}, associations=None)
    assert (facts.enforces, facts.enforces_limits) == (associations, limits)


def test_one_line_a_finding() -> None:
    assert good("gpu_type", "h100").line() == "ok   gpu_type: h100"
    assert bad("gpu_type", "'x' is not there", "choose y").line() == "BAD  gpu_type: 'x' is not there → choose y"
    assert unknown("driver", "not known").line() == "?    driver: not known"
