"""Curtailed probing keeps the pool of fixed probing: proved over all counts of n <= 32 trials."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from stateward.config import BandConfig, ProbeConfig
from stateward.difficulty import Bands, StopRule, build_rule, stop_rule
from stateward.difficulty.posterior import band_index
from stateward.errors import UserError

PROFILES = {
    "full": Bands.profile("full"),
    "lora": Bands.profile("lora"),
    # Kept bands with a gap between them, so that keeping is not an interval of k.
    "outer": Bands.from_config(BandConfig(keep=["rarely", "intermediate", "nearly_always"])),
    "hardest": Bands.from_config(BandConfig(keep=["rarely"])),
}


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("n", range(1, 33))
def test_stops_exactly_when_no_rest_can_change_the_decision(profile: str, n: int) -> None:
    """Both halves: a stop is never early (same pool, by construction), and never later than it could be."""
    bands = PROFILES[profile]
    final_band = [int(band_index(k, n, bands)) for k in range(n + 1)]
    final_keep = [bool(bands.kept[b]) for b in final_band]
    kept, band, fixed = (build_rule(bands, trials=n, rule=rule) for rule in ("kept", "band", "fixed"))
    for m in range(n + 1):
        for k in range(m + 1):
            rest = range(k, k + (n - m) + 1)  # every final count that the remaining trials can give
            decisions, end_bands = {final_keep[f] for f in rest}, {final_band[f] for f in rest}
            assert kept.decided(k, m) == (len(decisions) == 1)
            assert band.decided(k, m) == (len(end_bands) == 1)
            assert fixed.decided(k, m) == (m == n)
            for rule in (kept, band, fixed):
                assert rule.verdict(k, m) is (None if len(decisions) == 2 else next(iter(decisions)))
                assert rule.certain(k, m) == (len(decisions) == 1)
            assert set(kept.possible_bands(k, m)) == {bands.names[b] for b in end_bands}


@pytest.mark.parametrize("profile", ["full", "lora", "outer"])
@pytest.mark.parametrize("rule_name", ["kept", "band"])
@pytest.mark.parametrize("n", [1, 2, 5, 8, 11])
def test_every_sequence_of_outcomes_ends_in_the_decision_of_all_n(profile: str, rule_name: str, n: int) -> None:
    bands = PROFILES[profile]
    rule = build_rule(bands, trials=n, rule=rule_name)
    for outcomes in itertools.product((0, 1), repeat=n):
        want = bool(bands.kept[int(band_index(sum(outcomes), n, bands))])
        m = next(m for m in range(n + 1) if rule.decided(sum(outcomes[:m]), m))
        assert rule.verdict(sum(outcomes[:m]), m) is want


@pytest.mark.parametrize("rule_name", ["kept", "band", "bounded", "fixed"])
def test_least_more_is_the_shortest_way_to_a_stop(rule_name: str) -> None:
    n = 12
    rule = build_rule(PROFILES["lora"], trials=n, rule=rule_name)
    for m in range(n + 1):
        for k in range(m + 1):
            more = rule.least_more(k, m)
            ways = {extra: [rule.decided(k + up, m + extra) for up in range(extra + 1)] for extra in range(more + 1)}
            assert any(ways[more])
            assert not any(any(ways[extra]) for extra in range(more))


@pytest.mark.parametrize(
    ("profile", "n", "share"), [("full", 8, 0.61), ("full", 16, 0.62), ("lora", 8, 0.79), ("lora", 16, 0.77)]
)
def test_expected_trials_of_the_published_base_policy(profile: str, n: int, share: float) -> None:
    """The limits that the method's issue states for success rates ~ Beta(0.713, 0.682)."""
    rule = build_rule(PROFILES[profile], trials=n)
    assert round(rule.expected_trials() / n, 2) == share
    assert rule.error() == 0
    assert rule.worst_error() == 0


@pytest.mark.parametrize("profile", ["full", "lora", "outer"])
@pytest.mark.parametrize(
    ("n", "errors"), [(8, (0.0, 0.005, 0.02, 0.05)), (16, (0.0, 0.005, 0.02, 0.05)), (32, (0.02,))]
)
def test_bounded_rule_keeps_its_error_and_saves(profile: str, n: int, errors: tuple[float, ...]) -> None:
    bands = PROFILES[profile]
    exact = build_rule(bands, trials=n)
    last = exact.expected_trials()
    for error in errors:
        rule = build_rule(bands, trials=n, rule="bounded", bounded_error=error)
        assert rule.error() <= error + 1e-12
        assert rule.least_trials(error) - 1e-9 <= rule.expected_trials() <= last + 1e-9
        last = rule.expected_trials()
    assert last < exact.expected_trials()


def test_stated_error_and_trials_are_those_of_simulation() -> None:
    bands, n = PROFILES["lora"], 16
    rule = build_rule(bands, trials=n, rule="bounded", bounded_error=0.02)
    random = np.random.default_rng(7)
    draws = 40_000
    passed = random.random((draws, n)) < random.beta(*rule.population, size=(draws, 1))
    counts = np.concatenate([np.zeros((draws, 1), int), passed.cumsum(axis=1)], axis=1)
    halt = rule.stop[counts, np.arange(n + 1)]
    m = halt.argmax(axis=1)
    k = counts[np.arange(draws), m]
    differs = (rule.verdicts[k, m] == 1) != bands.kept[band_index(counts[:, n], np.full(draws, n), bands)]
    assert differs.mean() == pytest.approx(rule.error(), abs=4 * np.sqrt(0.02 / draws))
    assert m.mean() == pytest.approx(rule.expected_trials(), abs=0.1)
    assert np.bincount(m, minlength=n + 1) / draws == pytest.approx(rule.trial_distribution(), abs=0.01)


def test_more_trials_than_planned_are_decided_by_their_posterior() -> None:
    rule = build_rule(PROFILES["full"], trials=8)
    assert rule.decided(0, 9)
    assert rule.verdict(0, 9) is False
    assert rule.verdict(5, 10) is True
    assert rule.least_more(5, 10) == 0
    assert rule.possible_bands(0, 9) == ("rarely",)


def test_from_configuration_and_callable() -> None:
    rule = stop_rule("kept", ProbeConfig(trials=8), BandConfig())
    assert isinstance(rule, StopRule)
    assert not rule(1, 1)
    assert rule(1, 2)
    assert rule.verdict(1, 2) is True
    assert stop_rule("kept", ProbeConfig(trials=8), BandConfig()) is rule


@pytest.mark.parametrize(
    ("rule", "change", "says"),
    [
        ("keptt", {}, "did you mean 'kept'?"),
        ("kept", {"trials": 0}, "1..256"),
        ("kept", {"trials": 257}, "1..256"),
        ("bounded", {"bounded_error": 0.5}, "bounded_error"),
        ("bounded", {"population": [0.7]}, "population"),
        ("bounded", {"population": [0.7, 0.0]}, "population"),
    ],
)
def test_mistakes(rule: str, change: dict[str, object], says: str) -> None:
    with pytest.raises(UserError) as error:
        stop_rule(rule, ProbeConfig(**change), BandConfig())  # type: ignore[arg-type]
    assert says in str(error.value)


@pytest.mark.parametrize(("k", "m"), [(-1, 2), (3, 2)])
def test_impossible_counts(k: int, m: int) -> None:
    with pytest.raises(ValueError, match=r"0\.\.valid"):
        build_rule(PROFILES["full"], trials=8).decided(k, m)
