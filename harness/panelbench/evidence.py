"""What hits of an attack prove about epsilon: exact binomial bounds, and the event to bet on.

An event that happens with probability p on one dataset and q on a neighboring one shows that no
epsilon below log((p - delta) / q) holds, and no mu-GDP with mu below the difference of their normal
quantiles. Rates are bounded by Clopper and Pearson (1934); many guesses in one run by the theorem
of Steinke, Nasr and Jagielski (2023, arXiv:2305.08846).
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from scipy.special import betaincinv, ndtri
from scipy.stats import binom

if TYPE_CHECKING:
    from collections.abc import Callable

CANDIDATES = 256
"""Most thresholds of one statistic that are compared."""


def lowest_rate(hits: Any, trials: Any, error: float) -> np.ndarray:  # noqa: ANN401 - arrays
    """Below this the rate lies with probability at most `error` (Clopper and Pearson 1934)."""
    hits, trials = np.broadcast_arrays(np.asarray(hits, float), np.asarray(trials, float))
    found = betaincinv(np.maximum(hits, 1e-9), trials - hits + 1, error)
    return np.asarray(np.where(hits > 0, found, 0.0))


def highest_rate(hits: Any, trials: Any, error: float) -> np.ndarray:  # noqa: ANN401 - arrays
    """Above this the rate lies with probability at most `error`.

    >>> float(highest_rate(0, 1000, 0.05).round(4))
    0.003
    """
    trials = np.asarray(trials, float)
    return np.asarray(1.0 - lowest_rate(trials - hits, trials, error))


@dataclass(frozen=True, kw_only=True)
class Hits:
    """How often an event happened on either of two neighboring datasets; arrays or whole numbers.

    Attributes:
        hits: On the dataset where it is to be likelier.
        trials: Releases of that dataset.
        false_hits: On the other one.
        false_trials: Releases of the other one.
    """

    hits: Any
    trials: Any
    false_hits: Any
    false_trials: Any

    def _rates(self, error: float) -> tuple[np.ndarray, np.ndarray]:
        return (
            lowest_rate(self.hits, self.trials, error / 2),
            highest_rate(self.false_hits, self.false_trials, error / 2),
        )

    def epsilon(self, *, delta: float, error: float) -> np.ndarray:
        """Lower bound on epsilon at `delta`, too high with probability at most `error`.

        Below 0 it proves nothing.

        >>> hits = Hits(hits=500, trials=500, false_hits=0, false_trials=500)
        >>> round(float(hits.epsilon(delta=1e-5, error=0.01)), 2)
        4.54
        """
        low, high = self._rates(error)
        return np.asarray(np.log(np.maximum(low - delta, 1e-300) / high))

    def mu(self, *, error: float) -> np.ndarray:
        """Lower bound on mu of Gaussian DP, too high with probability at most `error`.

        Below 0 it proves nothing.
        """
        low, high = (np.clip(rate, 1e-300, 1 - 1e-15) for rate in self._rates(error))
        return np.asarray(ndtri(low) - ndtri(high))


@dataclass(frozen=True, kw_only=True)
class Bet:
    """An event: a statistic of a release at or above a threshold, or below it.

    Attributes:
        statistic: Index of the statistic.
        threshold: Where it is cut.
        above: Whether the event is "at or above".
        likelier_in: Whether it is to be likelier where the person is in the data.
    """

    statistic: int
    threshold: float
    above: bool
    likelier_in: bool

    def hits(self, within: np.ndarray, without: np.ndarray) -> Hits:
        """Count the event.

        Args:
            within: Statistics of releases of the data with the person, (releases, statistics).
            without: Statistics of releases of the neighboring data.
        """
        worlds = [within, without] if self.likelier_in else [without, within]
        counts = []
        for world in worlds:
            over = world[:, self.statistic] >= self.threshold
            counts += [int(np.count_nonzero(over == self.above)), len(world)]
        return Hits(hits=counts[0], trials=counts[1], false_hits=counts[2], false_trials=counts[3])

    def to_json(self) -> dict[str, Any]:
        """Its fields."""
        return dataclasses.asdict(self)


def best_bet(within: np.ndarray, without: np.ndarray, bound: Callable[[Hits], np.ndarray]) -> Bet:
    """The event with the highest bound on these releases, which must not be counted again.

    Args:
        within: Statistics of releases of the data with the person, (releases, statistics).
        without: Statistics of releases of the neighboring data, as many columns.
        bound: What is to be high, for example `Hits.mu` with an error so small that the best of
            many events is not just the luckiest.
    """
    found: tuple[float, Bet] | None = None
    for statistic in range(within.shape[1]):
        one, other = np.sort(within[:, statistic]), np.sort(without[:, statistic])
        cuts = np.unique(np.concatenate([one, other]))
        if len(cuts) > CANDIDATES:
            cuts = np.unique(np.quantile(cuts, np.linspace(0, 1, CANDIDATES)))
        sizes = np.array([len(one), len(other)])
        below = np.stack([np.searchsorted(values, cuts, side="left") for values in (one, other)])
        for above in (True, False):
            counts = sizes[:, None] - below if above else below
            for first in (0, 1):
                values = bound(
                    Hits(
                        hits=counts[first],
                        trials=sizes[first],
                        false_hits=counts[1 - first],
                        false_trials=sizes[1 - first],
                    )
                )
                best = int(np.argmax(values))
                if found is None or values[best] > found[0]:
                    bet = Bet(
                        statistic=statistic,
                        threshold=float(cuts[best]),
                        above=above,
                        likelier_in=first == 0,
                    )
                    found = float(values[best]), bet
    if found is None:
        raise ValueError("There is no statistic to choose from; give at least one.")
    return found[1]


@dataclass(frozen=True, kw_only=True)
class Discriminant:
    """Fisher's linear combination of statistics, its covariance shrunk towards a diagonal one.

    Attributes:
        center: Mean of each statistic.
        weights: What each counts for.
    """

    center: np.ndarray
    weights: np.ndarray

    @classmethod
    def fitted(cls, within: np.ndarray, without: np.ndarray, *, shrinkage: float = 0.05) -> Self:
        """Fit it on releases that are used for nothing else."""
        both = np.concatenate([within, without])
        center, scale = both.mean(axis=0), both.std(axis=0)
        scale = np.where(scale > 0, scale, 1.0)
        first, second = ((world - center) / scale for world in (within, without))
        parts = [world - world.mean(axis=0) for world in (first, second)]
        spread = np.concatenate(parts)
        covariance = spread.T @ spread / max(1, len(spread) - 2)
        covariance += (shrinkage + 1e-9) * np.eye(len(covariance))
        weights = np.linalg.solve(covariance, first.mean(axis=0) - second.mean(axis=0)) / scale
        return cls(center=center, weights=weights)

    def __call__(self, statistics: np.ndarray) -> np.ndarray:
        """The combination, shape (releases, 1)."""
        found: np.ndarray = (statistics - self.center) @ self.weights
        return found[:, None]


def guessing_chance(
    correct: int, guesses: int, canaries: int, epsilon: float, delta: float
) -> float:
    """Largest chance of so many right guesses in one run under (epsilon, delta)-DP.

    Theorem 5.2 of Steinke, Nasr and Jagielski (2023): each of `canaries` units was in or out by a
    fair coin of its own, and the guesser chose on which `guesses` of them to speak.
    """
    rate = 1.0 / (1.0 + math.exp(-epsilon))
    chance = float(binom.sf(correct - 1, guesses, rate))
    if correct < 1:
        return 1.0
    short = np.cumsum(binom.pmf(np.arange(correct - 1, -1, -1), guesses, rate))
    steepest = float((short / np.arange(1, correct + 1)).max())
    return min(1.0, chance + 2.0 * canaries * delta * steepest)


def guessed_epsilon(
    correct: int, guesses: int, canaries: int, *, delta: float, error: float
) -> float:
    """Lower bound on epsilon from one run, too high with probability at most `error`.

    >>> round(guessed_epsilon(950, 1000, 1000, delta=1e-6, error=0.01), 1)
    2.6
    """
    if guessing_chance(correct, guesses, canaries, 0.0, delta) > error:
        return 0.0
    low, high = 0.0, 1.0
    while guessing_chance(correct, guesses, canaries, high, delta) <= error:
        low, high = high, 2 * high
        if high > 64:
            break
    for _ in range(50):
        middle = (low + high) / 2
        unlikely = guessing_chance(correct, guesses, canaries, middle, delta) <= error
        low, high = (middle, high) if unlikely else (low, middle)
    return low
