"""An optimised channel with memory for the count, beside plain gains for the other coordinates."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from scipy.linalg import toeplitz

from panelbench import NeighboringRelation
from panelbench_fusion.bound import covered_pairs
from panelbench_fusion.intervals import dearest, endpoints, indicators, interval_costs
from panelbench_fusion.schedule import least, optimal_costs

if TYPE_CHECKING:
    from collections.abc import Callable

    from panelbench_fusion.model import Model

GRID = 10
"""Under replace-one, intervals that end on multiples of steps / GRID are watched from the start."""
ADDED = 1000
"""Changes that are added to the watched ones after a round."""
EXPONENTS = (16.0, 32.0, 64.0, 64.0, 64.0, 128.0, 128.0, 128.0)
"""Of the norm that stands in for a maximum, one a round."""
POWERS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
"""Fractional differences to begin with."""
LEAST_SHARE = 1e-3
"""No gain begins below this share of an even one, or its gradient would vanish."""


def fractional_difference(steps: int, power: float) -> np.ndarray:
    """(1 - shift)^power as a lower triangular Toeplitz matrix; 1/2 is the square root."""
    first = np.ones(steps)
    for lag in range(1, steps):
        first[lag] = first[lag - 1] * (lag - 1 - power) / lag
    return np.tril(toeplitz(first))


def assembled(count: np.ndarray, value_costs: np.ndarray) -> np.ndarray:
    """The channel of count rows C and gains sqrt(q_v) in time order.

    Args:
        count: C, shape (steps, steps).
        value_costs: Squared gains, shape (steps, size - 1).

    Returns:
        Shape (steps * size, steps * size).
    """
    steps, size = len(count), 1 + value_costs.shape[1]
    channel = np.zeros((steps, size, steps, size))
    channel[:, 0, :, 0] = count
    step = np.arange(steps)
    for place in range(1, size):
        channel[step, place, step, place] = np.sqrt(value_costs[:, place - 1])
    return channel.reshape(steps * size, steps * size)


def scaled_to(
    count: np.ndarray,
    value_costs: np.ndarray,
    relation: NeighboringRelation,
    total: float,
    *,
    watch: Callable[[np.ndarray, np.ndarray], None] | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """C and q_v scaled so that the dearest change of one vehicle costs `total`.

    Args:
        count: C, shape (steps, steps).
        value_costs: q_v, shape (steps, size - 1).
        relation: The neighboring relation.
        total: What the dearest change shall cost.
        watch: Told the dearest changes, as indices into `endpoints`.
    """
    costs, one, two = dearest(count, value_costs.sum(axis=1), relation, most=ADDED)
    if watch is not None:
        watch(one, two)
    return count * math.sqrt(total / costs[0]), value_costs * (total / costs[0])


class _AllIntervals:
    """Every change under add-or-remove-one."""

    def watch(self, one: np.ndarray, two: np.ndarray) -> None:
        """All are watched already."""

    def norm(
        self, count: np.ndarray, value_costs: np.ndarray, exponent: float
    ) -> tuple[float, np.ndarray, np.ndarray]:
        """A p-norm of the costs, and its gradients in C and in q_v."""
        value, weight = _norm(interval_costs(count, value_costs), exponent)
        both = covered_pairs(weight, len(count))
        return value, 2 * count @ both, np.diag(both)


class _WatchedPairs:
    """The changes under replace-one that a round keeps down; all are too many to try each time."""

    def __init__(self, steps: int) -> None:
        self._steps = steps
        first, after = endpoints(steps)
        stride = max(1, steps // GRID)
        coarse = np.flatnonzero((first % stride == 0) & ((after % stride == 0) | (after == steps)))
        self._pairs = coarse[np.stack(np.triu_indices(len(coarse), 1), axis=1)]
        self._place()

    def _place(self) -> None:
        left = indicators(self._steps, self._pairs[:, 0])
        right = indicators(self._steps, self._pairs[:, 1])
        self._difference, self._union = left - right, np.maximum(left, right)

    def watch(self, one: np.ndarray, two: np.ndarray) -> None:
        """Watch these changes too."""
        added = np.concatenate([self._pairs, np.stack([one, two], axis=1)])
        self._pairs = np.unique(added, axis=0)
        self._place()

    def norm(
        self, count: np.ndarray, value_costs: np.ndarray, exponent: float
    ) -> tuple[float, np.ndarray, np.ndarray]:
        """A p-norm of the costs, and its gradients in C and in q_v."""
        shift = self._difference @ count.T
        costs = np.einsum("ik,ik->i", shift, shift) + self._union @ value_costs
        value, weight = _norm(costs, exponent)
        by_count = 2 * (shift * weight[:, None]).T @ self._difference
        return value, by_count, weight @ self._union


def _norm(costs: np.ndarray, exponent: float) -> tuple[float, np.ndarray]:
    """A p-norm of costs >= 0 and its gradient."""
    top = costs.max()
    powers = (costs / top) ** exponent
    value = float(top * powers.sum() ** (1 / exponent))
    return value, value / powers.sum() * powers / np.maximum(costs, np.finfo(float).tiny)


def optimal_factor(
    model: Model,
    total: float,
    relation: NeighboringRelation,
    *,
    iterations: int,
    exponents: tuple[float, ...] = EXPONENTS,
) -> tuple[np.ndarray, np.ndarray]:
    """A channel whose expected error is low when no change of one vehicle costs over `total`.

    L-BFGS on the error of (C, sqrt(q_v)) after scaling to `total`, in rounds, where a p-norm of
    the costs replaces the largest. Under replace-one it is over watched changes, which the dearest
    of all join after each round. It begins with the best of a few fractional differences times
    optimal gains, and returns the best that it met, after exact scaling; so it is never worse than
    the optimal memoryless channel. The problem in C is not convex.

    Args:
        model: The Gaussian model, the count first among the coordinates.
        total: What the dearest change may cost (Q).
        relation: The neighboring relation.
        iterations: Most iterations of L-BFGS a round.
        exponents: Of the p-norm, one a round.

    Returns:
        C, shape (steps, steps), and q_v, shape (steps, size - 1).
    """
    steps, others = model.steps, model.size - 1
    rows, columns = np.tril_indices(steps)
    step = np.arange(steps)

    def unpacked(flat: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        count = np.zeros((steps, steps))
        count[rows, columns] = flat[: len(rows)]
        return count, flat[len(rows) :].reshape(steps, others)

    def packed(count: np.ndarray, roots: np.ndarray) -> np.ndarray:
        return np.concatenate([count[rows, columns], roots.ravel()])

    def loss(flat: np.ndarray, exponent: float) -> tuple[float, np.ndarray]:
        count, roots = unpacked(flat)
        cost, by_count, by_costs = changes.norm(count, (roots**2).sum(axis=1), exponent)
        scale = math.sqrt(total / cost)
        error, gradient = model.error(assembled(scale * count, (scale * roots) ** 2))
        blocks = gradient.reshape(steps, 1 + others, steps, 1 + others)
        of_count = blocks[:, 0, :, 0]
        of_roots = np.empty((steps, others))
        for place in range(others):
            of_roots[:, place] = blocks[step, 1 + place, step, 1 + place]
        of_roots *= np.sign(roots)  # the channel has the absolute values
        along = float(np.sum(of_count * count) + np.sum(of_roots * roots)) / cost
        to_count = scale * (of_count - along / 2 * by_count)
        to_roots = scale * (of_roots - along * roots * by_costs[:, None])
        return error / level, packed(to_count, to_roots) / level

    costs = optimal_costs(model, total)
    roots = np.sqrt(np.maximum(costs, total * LEAST_SHARE / costs.size))
    changes = (
        _AllIntervals()
        if relation is NeighboringRelation.ADD_OR_REMOVE_ONE
        else _WatchedPairs(steps)
    )
    level = 1.0
    starts = [
        packed(fractional_difference(steps, power) * roots[:, 0], roots[:, 1:]) for power in POWERS
    ]
    flat = min(starts, key=lambda one: loss(one, exponents[-1])[0])
    level = loss(flat, exponents[-1])[0]
    best = np.diag(np.sqrt(costs[:, 0])), costs[:, 1:]
    lowest = model.error(assembled(*best))[0]
    for exponent in (*exponents, None):
        count, roots = unpacked(flat)
        found = scaled_to(count, roots**2, relation, total, watch=changes.watch)
        error = model.error(assembled(*found))[0]
        if error < lowest:
            best, lowest = found, error
        if exponent is not None:
            flat = least(
                partial(loss, exponent=exponent), flat, iterations=iterations, tolerance=1e-9
            )
    return best
