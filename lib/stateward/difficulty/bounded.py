"""The bounded-error rule: the fewest trials for a stated share of decisions that may differ from those at n trials.

At each node of the walk we either stop, with the likelier decision, or draw on. Minimising (expected trials +
price × probability that the decision differs) is backward induction; the price is what ties the two together. A higher
price buys fewer differences. The policies that a price can give lie on a convex hull with gaps, because one node near
the origin can carry several per cent of the tasks. So the policy just over the budget is also repaired, node by node;
what a policy leaves of the budget is spent, node by node; and the cheaper result is taken.
"""

from __future__ import annotations

import numpy as np

from stateward.difficulty.walk import Flags, Floats, ends, kept_chance, mean_trials, pass_chance


def bounded_stops(kept: Flags, error: float, population: tuple[float, float]) -> tuple[Flags, Flags]:
    """(stop [k, m], keep [k, m]) with the expected share of differing decisions at most `error` in `population`.

    Args:
        kept: [n + 1], whether a task with k passes of n is kept.
    """
    n = len(kept) - 1
    chance = pass_chance(n, population)
    final = kept_chance(kept, chance)
    keep = final >= 0.5
    wrong = np.minimum(final, 1 - final)
    within, over, _ = _around(error, chance, wrong)
    choices = [within] if over is None else [within, _repair(over, error, chance, wrong)]
    choices = [_spend(stop, error, chance, wrong) for stop in choices]
    return min(choices, key=lambda stop: mean_trials(ends(stop, chance))), keep


def least_trials(kept: Flags, error: float, population: tuple[float, float]) -> float:
    """Expected trials that no rule of this expected error goes below, not even one that draws lots (weak duality)."""
    n = len(kept) - 1
    chance = pass_chance(n, population)
    final = kept_chance(kept, chance)
    wrong = np.minimum(final, 1 - final)
    within, _, price = _around(error, chance, wrong)
    return mean_trials(ends(within, chance)) + price * (_error(within, chance, wrong) - error)


def _around(error: float, chance: Floats, wrong: Floats) -> tuple[Flags, Flags | None, float]:
    """The policy of the lowest price found within the budget, that of the highest found over it, and that price."""
    low, high = 0.0, 1.0
    over: Flags | None = None
    while _error(within := _priced(high, chance, wrong), chance, wrong) > error:
        low, high, over = high, high * 2, within
        if high > 1e12:  # no node with an error is worth its trials any more
            break
    for _ in range(60):
        middle = (low + high) / 2
        stop = _priced(middle, chance, wrong)
        if _error(stop, chance, wrong) <= error:
            high, within = middle, stop
        else:
            low, over = middle, stop
    return within, over, high


def _priced(price: float, chance: Floats, wrong: Floats) -> Flags:
    n = len(chance) - 1
    stop = np.ones((n + 1, n + 1), bool)
    value = price * wrong[:, n]
    for m in range(n - 1, -1, -1):
        rise = chance[: m + 1, m]
        go_on = 1 + rise * value[1 : m + 2] + (1 - rise) * value[: m + 1]
        halt = price * wrong[: m + 1, m]
        stop[: m + 1, m] = halt <= go_on
        value = np.minimum(halt, go_on)
    return stop


def _repair(stop: Flags, error: float, chance: Floats, wrong: Floats) -> Flags:
    """Draw on at the nodes that buy the most accuracy for their trials, until the budget holds."""
    stop = stop.copy()
    while (now := _error(stop, chance, wrong)) > error:
        ended = ends(stop, chance)
        trials = mean_trials(ended)
        best: tuple[tuple[int, float], tuple[int, int]] | None = None
        for k, m in np.argwhere((ended * wrong > 0) & stop):
            stop[k, m] = False
            after = ends(stop, chance)
            gain, cost = now - float((after * wrong).sum()), mean_trials(after) - trials
            stop[k, m] = True
            if gain <= 0:
                continue
            # A node that ends the repair is judged by its cost alone, any other by its cost for what it gains.
            rank = (0, cost) if now - gain <= error else (1, cost / gain)
            if best is None or rank < best[0]:
                best = rank, (int(k), int(m))
        if best is None:
            raise AssertionError("no node lowers the error, though drawing to n trials makes it 0")
        stop[best[1]] = False
    return stop


def _spend(stop: Flags, error: float, chance: Floats, wrong: Floats) -> Flags:
    """Stop earlier at the nodes that save the most trials for their error, while the budget holds."""
    stop = stop.copy()
    while True:
        now, trials = _error(stop, chance, wrong), mean_trials(ends(stop, chance))
        best: tuple[float, tuple[int, int]] | None = None
        for k, m in np.argwhere((_visits(stop, chance) > 0) & ~stop):
            stop[k, m] = True
            ended = ends(stop, chance)
            after, saved = float((ended * wrong).sum()), trials - mean_trials(ended)
            stop[k, m] = False
            if after <= error and saved > 0:
                worth = saved / max(after - now, 1e-15)
                if best is None or worth > best[0]:
                    best = worth, (int(k), int(m))
        if best is None:
            return stop
        stop[best[1]] = True


def _visits(stop: Flags, chance: Floats) -> Floats:
    """[k, m] probability that a task comes here, whether it stops or draws on."""
    n = len(chance) - 1
    out = np.zeros((n + 1, n + 1))
    out[0, 0] = 1.0
    for m in range(n):
        going = np.where(stop[:, m], 0.0, out[:, m])
        up = going * chance[:, m]
        out[:, m + 1] = going - up
        out[1:, m + 1] += up[:-1]
    return out


def _error(stop: Flags, chance: Floats, wrong: Floats) -> float:
    return float((ends(stop, chance) * wrong).sum())
