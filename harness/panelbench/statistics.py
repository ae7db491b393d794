"""The statistics of a leaderboard: intervals, paired differences, ties and ranks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from scipy.special import stdtr, stdtrit

CONFIDENCE = 0.95
_ZERO = 1e-12


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A mean and its confidence interval; no interval from fewer than two values."""

    mean: float
    lower: float | None = None
    upper: float | None = None


Sample = Mapping[int, Sequence[float]]
"""Values of an entry by repeat: one, or one for each case where the score is a mean over cases."""


def interval(sample: Sequence[Sequence[float]]) -> Interval:
    """Student-t interval of the mean over repeats and, where there are several, over cases.

    With one value a repeat it is the usual interval. With cases (test episodes that are alike)
    repeats and cases are both draws: the squared standard error is the sum of that of the means by
    repeat and that of the means by case, which is conservative (Owen 2007, the pigeonhole
    bootstrap), and the degrees of freedom are Satterthwaite's. From one repeat with cases it covers
    the cases only.

    Args:
        sample: For each repeat one value, or one value a case.

    >>> found = interval([[1.0], [2.0], [3.0]])
    >>> round(found.lower, 4), round(found.upper, 4)
    (-0.4841, 4.4841)
    >>> interval([[1.0]])
    Interval(mean=1.0, lower=None, upper=None)
    """
    mean, error, freedom = _spread(sample)
    if not freedom:
        return Interval(mean=mean)
    half = float(stdtrit(freedom, 0.5 + CONFIDENCE / 2)) * error
    return Interval(mean=mean, lower=mean - half, upper=mean + half)


def _spread(sample: Sequence[Sequence[float]]) -> tuple[float, float, float]:
    """Mean, its standard error, and degrees of freedom; these are 0 where nothing tells them."""
    if len({len(values) for values in sample}) > 1:
        sample = [[_mean(values)] for values in sample]
    ways = [
        [_mean(values) for values in sample],
        [_mean(case) for case in zip(*sample, strict=True)],
    ]
    mean = _mean(ways[0])
    known = [
        (math.fsum((v - mean) ** 2 for v in values) / (len(values) - 1) / len(values), len(values))
        for values in ways
        if len(values) > 1
    ]
    square = math.fsum(part for part, _ in known)
    if not known:
        return mean, 0.0, 0.0
    if square == 0:
        return mean, 0.0, float(min(count for _, count in known) - 1)
    freedom = square**2 / math.fsum(part**2 / (count - 1) for part, count in known)
    return mean, math.sqrt(square), freedom


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _differences(first: Sample, second: Sample) -> list[list[float]]:
    """First less second, repeat by repeat where both have it, and case by case where they pair."""
    shared = [(values, second[repeat]) for repeat, values in first.items() if repeat in second]
    return [
        [a - b for a, b in zip(one, other, strict=True)]
        if len(one) == len(other)
        else [_mean(one) - _mean(other)]
        for one, other in shared
    ]


def difference(first: Sample, second: Sample) -> Interval | None:
    """First less second with its interval, paired; None where no repeat is shared."""
    found = _differences(first, second)
    return interval(found) if found else None


def paired_p(first: Sample, second: Sample) -> float:
    """Two-sided p-value of the paired t-test over shared repeats and cases; 1 where there are few.

    Differences that are the same everywhere (entries without randomness) separate surely, unless
    they are all zero.
    """
    differences = _differences(first, second)
    mean, error, freedom = _spread(differences) if differences else (0.0, 0.0, 0.0)
    scale = max(abs(v) for values in (*first.values(), *second.values()) for v in values)
    if not freedom or abs(mean) <= _ZERO * scale:
        return 1.0
    if error <= _ZERO * scale:
        return 0.0
    return 2.0 * float(stdtr(freedom, -abs(mean) / error))


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
        rank: By mean, from 1; equal means share the better rank.
        rank_lower: Best rank it may have: 1 + the number of entries surely better.
        rank_upper: Worst rank it may have.
        tie_group: From 1; entries in one group are not separated from the group's best.
        difference: To the best entry, paired over shared repeats and cases; None for the best.
    """

    rank: int
    rank_lower: int
    rank_upper: int
    tie_group: int
    difference: Interval | None


def standings(entries: Mapping[str, Sample], *, lower: bool) -> dict[str, Standing]:
    """Rank entries by their means.

    Args:
        entries: Values by repeat, and by case, for each entry.
        lower: Whether lower is better.
    """
    sign = 1.0 if lower else -1.0
    mean = {name: _mean([_mean(v) for v in sample.values()]) for name, sample in entries.items()}
    order = sorted(entries, key=lambda name: (sign * mean[name], name))
    pairs = list(combinations(order, 2))  # the better one first
    apart = separated({(a, b): paired_p(entries[a], entries[b]) for a, b in pairs})
    result: dict[str, Standing] = {}
    group = _groups(order, apart)
    rank, of = 1, order[0]
    for position, name in enumerate(order):
        gap = difference(entries[name], entries[order[0]]) if position else None
        if abs(mean[name] - mean[of]) > _ZERO * max(abs(mean[name]), abs(mean[of])):
            rank, of = position + 1, name
        result[name] = Standing(
            rank=rank,
            rank_lower=1 + sum((other, name) in apart for other in order[:position]),
            rank_upper=len(order) - sum((name, other) in apart for other in order[position + 1 :]),
            tie_group=group[name],
            difference=gap,
        )
    return result


def _groups(order: Sequence[str], apart: set[tuple[str, str]]) -> dict[str, int]:
    """The best and all that are not separated from it are group 1, the same of the rest group 2."""
    found: dict[str, int] = {}
    left, group = list(order), 0
    while left:
        group += 1
        own = [name for name in left if (left[0], name) not in apart]
        found |= dict.fromkeys(own, group)
        left = [name for name in left if name not in found]
    return found
