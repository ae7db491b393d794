"""The statistics of a leaderboard: intervals, paired differences, ties and ranks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

from scipy.special import stdtr, stdtrit

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

CONFIDENCE = 0.95
_ZERO = 1e-12


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A mean and its confidence interval; no interval from fewer than two values."""

    mean: float
    lower: float | None = None
    upper: float | None = None


def interval(values: Sequence[float]) -> Interval:
    """Student-t interval of the mean over repeats.

    >>> found = interval([1.0, 2.0, 3.0])
    >>> round(found.lower, 4), round(found.upper, 4)
    (-0.4841, 4.4841)
    >>> interval([1.0])
    Interval(mean=1.0, lower=None, upper=None)
    """
    n = len(values)
    mean = math.fsum(values) / n
    if n < 2:
        return Interval(mean=mean)
    half = float(stdtrit(n - 1, 0.5 + CONFIDENCE / 2)) * _standard_error(values, mean)
    return Interval(mean=mean, lower=mean - half, upper=mean + half)


def _standard_error(values: Sequence[float], mean: float) -> float:
    n = len(values)
    return math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (n - 1) / n)


def paired_p(first: Mapping[int, float], second: Mapping[int, float]) -> float:
    """Two-sided p-value of the paired t-test over shared repeats; 1 where there are fewer than two.

    Differences that are the same in every repeat (entries without randomness) separate surely,
    unless they are all zero.
    """
    differences = [first[repeat] - second[repeat] for repeat in first if repeat in second]
    if len(differences) < 2:
        return 1.0
    mean = math.fsum(differences) / len(differences)
    scale = max(abs(v) for v in (*first.values(), *second.values()))
    if abs(mean) <= _ZERO * scale:
        return 1.0
    error = _standard_error(differences, mean)
    if error <= _ZERO * scale:
        return 0.0
    return 2.0 * float(stdtr(len(differences) - 1, -abs(mean) / error))


def separated(p_values: Mapping[tuple[str, str], float]) -> set[tuple[str, str]]:
    """The pairs that differ at 5 % family-wise, by Holm's step-down procedure."""
    found: set[tuple[str, str]] = set()
    order = sorted(p_values, key=lambda pair: (p_values[pair], pair))
    for step, pair in enumerate(order):
        if p_values[pair] > (1 - CONFIDENCE) / (len(order) - step):
            break
        found.add(pair)
    return found


@dataclass(frozen=True, kw_only=True)
class Standing:
    """Where an entry stands among those it can be compared with.

    Attributes:
        rank: By mean, from 1.
        rank_lower: Best rank it may have: 1 + the number of entries surely better.
        rank_upper: Worst rank it may have.
        tie_group: From 1; entries in one group are not separated from the group's best.
        difference: To the best entry, paired over shared repeats; None for the best itself.
    """

    rank: int
    rank_lower: int
    rank_upper: int
    tie_group: int
    difference: Interval | None


def standings(entries: Mapping[str, Mapping[int, float]], *, lower: bool) -> dict[str, Standing]:
    """Rank entries by the mean of their values (by repeat).

    Args:
        entries: Values by repeat, for each entry.
        lower: Whether lower is better.
    """
    sign = 1.0 if lower else -1.0
    mean = {name: math.fsum(v.values()) / len(v) for name, v in entries.items()}
    order = sorted(entries, key=lambda name: (sign * mean[name], name))
    pairs = list(combinations(order, 2))  # the better one first
    apart = separated({(a, b): paired_p(entries[a], entries[b]) for a, b in pairs})
    result: dict[str, Standing] = {}
    leader, group = order[0], 1
    for position, name in enumerate(order):
        if (leader, name) in apart:
            leader, group = name, group + 1
        best, own = entries[order[0]], entries[name]
        shared = [own[repeat] - best[repeat] for repeat in own if repeat in best]
        result[name] = Standing(
            rank=position + 1,
            rank_lower=1 + sum((other, name) in apart for other in order[:position]),
            rank_upper=len(order) - sum((name, other) in apart for other in order[position + 1 :]),
            tie_group=group,
            difference=interval(shared) if position and shared else None,
        )
    return result
