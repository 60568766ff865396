"""When a task's trials may stop: `StopRule`.

The rules, for n planned trials a task:

* ``kept`` stops once no outcome of the remaining trials can change whether the task is kept. The pool is the one that
  n trials give, whatever the outcomes.
* ``band`` stops once no outcome of the remaining trials can change the task's band.
* ``bounded`` stops once a change has become unlikely: `StopRule.error` states the expected share of decisions that
  differ from those at n trials.
* ``fixed`` never stops before n.

A rule is two tables over (passes, valid trials), so asking costs an array look-up.
"""

from __future__ import annotations

import functools

import numpy as np
import numpy.typing as npt

from stateward.config import BandConfig, ProbeConfig
from stateward.difficulty.bands import Bands
from stateward.difficulty.bounded import bounded_stops, least_trials
from stateward.difficulty.posterior import band_index
from stateward.difficulty.walk import POPULATION, Flags, constant_chance, ends, kept_chance, mean_trials, pass_chance
from stateward.errors import UserError, nearest

RULES = ("kept", "band", "bounded", "fixed")
#: Above this many trials a task, the bounded rule's search takes longer than a login node should work.
MAX_TRIALS = 256


class StopRule:
    """Whether a task with k passes of m valid trials is decided, and how.

    Build it with `stop_rule` or `build_rule`, which keep the tables. Calling the rule is asking `decided`.

    Attributes:
        trials: n, the planned valid trials a task. Voids are no trials.
        stop: [n + 1, n + 1] bool, [k, m]: stop here.
        verdicts: [n + 1, n + 1] int, [k, m]: 1 keep, 0 drop, -1 not decided yet.
    """

    def __init__(
        self, bands: Bands, trials: int, rule: str, bounded_error: float, population: tuple[float, float]
    ) -> None:
        if rule not in RULES:
            raise UserError(f"probe.stop: unknown rule {rule!r}", do=nearest(rule, RULES))
        if not 1 <= trials <= MAX_TRIALS:
            raise UserError(
                f"probe.trials is {trials}", f"trials a task must lie in 1..{MAX_TRIALS}", "8 and 16 are usual"
            )
        if not 0 <= bounded_error < 0.5:
            raise UserError(
                f"probe.bounded_error is {bounded_error}", "it is a share of decisions, in [0, 0.5)", "try 0.02"
            )
        self.bands, self.trials, self.rule = bands, trials, rule
        self.population = population
        n = trials
        final = np.arange(n + 1)
        self._final_band = band_index(final, np.full(n + 1, n), bands)
        self._final_kept = bands.kept[self._final_band]
        always, never, same_band = _certain(self._final_kept), _certain(~self._final_kept), _one_value(self._final_band)
        self.verdicts = np.full((n + 1, n + 1), -1, np.int8)
        self.stop: Flags = np.zeros((n + 1, n + 1), bool)
        if rule == "kept":
            self.stop = always | never
        elif rule == "band":
            self.stop = same_band
        elif rule == "bounded":
            self.stop, keep = bounded_stops(self._final_kept, bounded_error, population)
            self.verdicts[self.stop] = keep[self.stop]
        self.stop[:, n] = True
        self.verdicts[always], self.verdicts[never] = 1, 0
        self._certain = always | never
        self._least = _least_more(self.stop)

    def __call__(self, passes: int, valid: int) -> bool:
        return self.decided(passes, valid)

    def decided(self, passes: int, valid: int) -> bool:
        """Whether no further trial is needed; always True from n valid trials on."""
        self._check(passes, valid)
        return valid >= self.trials or bool(self.stop[passes, valid])

    def verdict(self, passes: int, valid: int) -> bool | None:
        """True: keep. False: drop. None: the rest of the n trials may still decide."""
        self._check(passes, valid)
        if valid > self.trials:
            return bool(self.bands.kept[band_index(passes, valid, self.bands)])
        value = int(self.verdicts[passes, valid])
        return None if value < 0 else bool(value)

    def certain(self, passes: int, valid: int) -> bool:
        """Whether no outcome of the remaining trials can change the verdict (the ``bounded`` rule may stop before)."""
        self._check(passes, valid)
        return valid >= self.trials or bool(self._certain[passes, valid])

    def least_more(self, passes: int, valid: int) -> int:
        """The fewest further valid trials that can decide the task; 0 if it is decided.

        That many may run at the same time and none of them is wasted.
        """
        self._check(passes, valid)
        return 0 if valid >= self.trials else int(self._least[passes, valid])

    def possible_bands(self, passes: int, valid: int) -> tuple[str, ...]:
        """Names of the bands that the task can still end in at n trials."""
        self._check(passes, valid)
        if valid >= self.trials:
            return (self.bands.names[int(band_index(passes, valid, self.bands))],)
        reachable = np.unique(self._final_band[passes : passes + self.trials - valid + 1])
        return tuple(self.bands.names[i] for i in reachable)

    def expected_trials(self, population: tuple[float, float] | None = None) -> float:
        """Expected valid trials a task, exactly, for success rates spread as Beta(`population`)."""
        return mean_trials(ends(self.stop, pass_chance(self.trials, population or self.population)))

    def trial_distribution(self, population: tuple[float, float] | None = None) -> npt.NDArray[np.float64]:
        """[n + 1] probability that a task's trials end after m of them."""
        chance = pass_chance(self.trials, population or self.population)
        return np.asarray(ends(self.stop, chance).sum(axis=0))

    def error(self, population: tuple[float, float] | None = None) -> float:
        """Expected share of tasks whose verdict differs from that at n trials; 0 but for ``bounded``."""
        return self._error(pass_chance(self.trials, population or self.population))

    def least_trials(self, error: float) -> float:
        """Expected valid trials a task that no rule goes below whose expected error is `error`."""
        return least_trials(self._final_kept, error, self.population)

    def worst_error(self) -> float:
        """The largest such probability that a task of any success rate has (on a grid of 1/400)."""
        return max(self._error(constant_chance(self.trials, p)) for p in np.linspace(0, 1, 401))

    def _error(self, chance: npt.NDArray[np.float64]) -> float:
        kept = kept_chance(self._final_kept, chance)
        wrong = np.where(self.verdicts == 1, 1 - kept, kept)
        return float((ends(self.stop, chance) * wrong).sum())

    def _check(self, passes: int, valid: int) -> None:
        if not 0 <= passes <= valid:
            raise ValueError(f"passes must lie in 0..valid; got {passes} of {valid}")


def stop_rule(rule: str, probe: ProbeConfig, bands: BandConfig) -> StopRule:
    """The rule named `rule` for a configuration (`probe.stop` is what the configuration itself names).

    Raises:
        UserError: an unknown rule or band, or a number out of range.
    """
    return build_rule(
        Bands.from_config(bands),
        trials=probe.trials,
        rule=rule,
        bounded_error=probe.bounded_error,
        population=tuple(probe.population),
    )


@functools.lru_cache(maxsize=64)
def build_rule(
    bands: Bands,
    *,
    trials: int,
    rule: str = "kept",
    bounded_error: float = 0.02,
    population: tuple[float, ...] = POPULATION,
) -> StopRule:
    """The rule for these bands; tables are built once (milliseconds; the bounded rule's search up to a second).

    Raises:
        UserError: an unknown rule, or a number out of range.
    """
    if len(population) != 2 or min(population) <= 0:
        raise UserError(
            f"probe.population is {list(population)}", "it holds the two positive parameters of a Beta distribution"
        )
    return StopRule(bands, trials, rule, bounded_error, (population[0], population[1]))


def _certain(flags: Flags) -> Flags:
    """[k, m]: every final count k..k + n - m has its flag up."""
    n = len(flags) - 1
    out = np.zeros((n + 1, n + 1), bool)
    out[:, n] = flags
    for m in range(n - 1, -1, -1):
        out[: m + 1, m] = out[: m + 1, m + 1] & out[1 : m + 2, m + 1]
    return out


def _one_value(values: npt.NDArray[np.int64]) -> Flags:
    """[k, m]: every final count k..k + n - m has the same value."""
    out = np.zeros((len(values), len(values)), bool)
    for value in np.unique(values):
        out |= _certain(values == value)
    return out


def _least_more(stop: Flags) -> npt.NDArray[np.int64]:
    n = len(stop) - 1
    out = np.zeros((n + 1, n + 1), np.int64)
    for m in range(n - 1, -1, -1):
        out[: m + 1, m] = 1 + np.minimum(out[: m + 1, m + 1], out[1 : m + 2, m + 1])
        out[stop[:, m], m] = 0
    return out
