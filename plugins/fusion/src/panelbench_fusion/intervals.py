"""What a channel with memory spends on one vehicle, when each vehicle counts on one interval.

The count of a vehicle is 1 on one interval of steps and 0 elsewhere; its other coordinates are 0
elsewhere and lie there in -1..1 (add-or-remove-one) or 0..1 (replace-one). `feature.first_visit`
enforces that. So neighbors differ in one of finitely many ways in the count, and the largest loss
is found by trying them all.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from panelbench import NeighboringRelation

CHUNK = 512


@lru_cache(maxsize=4)
def endpoints(steps: int) -> tuple[np.ndarray, np.ndarray]:
    """First step, and the step after the last, of every interval; the empty one comes first."""
    first, last = np.triu_indices(steps)
    return np.r_[0, first], np.r_[0, last + 1]


def interval_costs(count: np.ndarray, value_costs: np.ndarray) -> np.ndarray:
    """|C 1_I|^2 + sum of q_v over I for every interval I, in the order of `endpoints`.

    Args:
        count: C, lower triangular, shape (steps, steps).
        value_costs: q_v, squared gains of the other coordinates, summed, shape (steps,).
    """
    first, after = endpoints(len(count))
    prefix, spent = _prefixes(count, value_costs)
    gram = prefix.T @ prefix
    norms = np.diag(gram)
    moved = norms[first] + norms[after] - 2 * gram[first, after]
    return np.asarray(moved + spent[after] - spent[first])


def _prefixes(count: np.ndarray, value_costs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """C 1_[0, j) in column j, and the value costs of [0, j)."""
    zero = np.zeros((len(count), 1))
    return np.hstack([zero, count.cumsum(axis=1)]), np.r_[0.0, value_costs.cumsum()]


def dearest(
    count: np.ndarray, value_costs: np.ndarray, relation: NeighboringRelation, *, most: int = 1
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The changes of one vehicle that cost most, by trying all.

    Add-or-remove: one interval I comes or goes, which costs |C 1_I|^2 + sum of q_v over I, for
    values within -1..1. Replace-one: interval I becomes interval J, either may be empty, at
    |C (1_I - 1_J)|^2 + sum of q_v over the union of I and J, for values within 0..1.

    Args:
        count: C, lower triangular, shape (steps, steps).
        value_costs: q_v, shape (steps,), not negative.
        relation: The neighboring relation.
        most: How many changes to return; under replace-one the dearest J for each of as many I.

    Returns:
        Costs, largest first, and indices of I and of J into `endpoints`.
    """
    alone = interval_costs(count, value_costs)
    if relation is NeighboringRelation.ADD_OR_REMOVE_ONE:
        order = np.argsort(-alone, kind="stable")[:most]
        return alone[order], order, np.zeros_like(order)
    first, after = endpoints(len(count))
    prefix, spent = _prefixes(count, value_costs)
    shifts = (prefix[:, after] - prefix[:, first]).T
    # |U_I - U_J|^2 + costs of both as one product
    ones = np.ones((len(alone), 1))
    left = np.hstack([-2 * shifts, alone[:, None], ones])
    right = np.hstack([shifts, ones, alone[:, None]])
    end, begin = spent[after], spent[first]
    costs, two = np.empty(0), np.empty(0, dtype=int)
    for start in range(0, len(alone), CHUNK):
        rows = slice(start, min(start + CHUNK, len(alone)))
        columns = slice(0, rows.stop)  # J up to the chunk's end is enough: costs are symmetric
        pairs = left[rows] @ right[columns].T
        if value_costs.any():
            shared = np.minimum(end[rows, None], end[columns])
            shared -= np.maximum(begin[rows, None], begin[columns])
            pairs -= np.maximum(shared, 0.0, out=shared)
        other = pairs.argmax(axis=1)
        costs = np.r_[costs, pairs[np.arange(len(pairs)), other]]
        two = np.r_[two, other]
    one = np.argsort(-costs, kind="stable")[:most]
    return costs[one], one, two[one]


def indicators(steps: int, intervals: np.ndarray) -> np.ndarray:
    """1_I for the intervals with these indices; shape (intervals, steps)."""
    first, after = endpoints(steps)
    step = np.arange(steps)
    inside = (step >= first[intervals, None]) & (step < after[intervals, None])
    return inside.astype(float)


def worst_spending(
    count: np.ndarray, value_costs: np.ndarray, relation: NeighboringRelation
) -> np.ndarray:
    """What each step spends on the change that costs most, shape (steps,); sums to that cost."""
    _, one, two = dearest(count, value_costs, relation)
    left, right = indicators(len(count), one)[0], indicators(len(count), two)[0]
    spent: np.ndarray = (count @ (left - right)) ** 2 + np.maximum(left, right) * value_costs
    return spent
