"""LB3: no Gaussian channel with memory does better than this, under enforced single visits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.linalg import eigh

from panelbench_fusion.intervals import endpoints, interval_costs

if TYPE_CHECKING:
    from panelbench_fusion.model import Model

EVEN = 1e-3
"""Weight of an even mixture of all intervals, which keeps the weighted cost positive definite."""


def covered_pairs(weight: np.ndarray, steps: int) -> np.ndarray:
    """W_ij, the sum of the weights of the intervals that hold both i and j.

    Args:
        weight: One for each interval in the order of `intervals.endpoints`.
        steps: Number of steps.

    Returns:
        Shape (steps, steps): sum over I of weight_I 1_I 1_I^T.
    """
    first, after = endpoints(steps)
    table = np.zeros((steps, steps))  # by first and last step
    table[first[1:], after[1:] - 1] = weight[1:]
    both = np.triu(table.cumsum(axis=0)[:, ::-1].cumsum(axis=1)[:, ::-1])
    return np.asarray(both + np.triu(both, 1).T)


def certified_temporal_bound(
    model: Model, count: np.ndarray, total: float, *, exponent: float
) -> float:
    """A lower bound on the expected error of every channel with memory on the count.

    Covers, for a Gaussian model and add-or-remove-one, all mechanisms that release at step k any
    number of linear functions of S_1 .. S_k plus Gaussian noise, chosen from earlier outputs, with
    no interval costing over `total`. Let D_k be the information that step k adds (its C^T C, a
    positive semidefinite matrix on steps 1 .. k). The error is convex in D_1 .. D_K, so it is at
    least its linearisation at `count`. Every mixture W of 1_I 1_I^T has sum of tr(D_k W) <=
    `total`; the least of the linearisation under that one constraint puts all on one step in one
    direction, an eigenvalue problem for each step. Adaptive choices are covered by Jensen, since
    the constraint is linear too. It is tight only where `count` and W are optimal.

    Args:
        model: With the count alone, and no lag.
        count: C, shape (steps, steps), best close to the optimum and scaled to `total`.
        total: Q.
        exponent: Of the p-norm whose gradient is the mixture; the last one C was optimised for.
    """
    if model.size != 1 or model.lag:
        raise ValueError("The bound is for the count alone and estimates that do not wait.")
    steps = model.steps
    costs = interval_costs(count, np.zeros(steps))
    weight = (costs / costs.max()) ** exponent
    weight = (1 - EVEN) * weight / weight.sum() + EVEN / len(weight)
    mixture = covered_pairs(weight, steps)
    error, _ = model.error(count)
    of_outputs = count @ model.of_sums @ count.T + np.eye(steps)
    value = np.zeros((steps, steps))  # minus the gradient in D_k, on steps 1 .. k
    dearest, along = 0.0, 0.0
    for k in reversed(range(steps)):
        rows = slice(0, k + 1)
        known = np.linalg.solve(of_outputs[rows, rows], count[rows] @ model.with_state[:, k])
        # covariance of S_1 .. S_k and X_k given the outputs of steps 1 .. k
        left = model.with_state[rows, k] - model.of_sums[rows] @ count[rows].T @ known
        value[rows, rows] += np.outer(left, left) / steps
        along += float(count[k, rows] @ value[rows, rows] @ count[k, rows])
        top = eigh(
            value[rows, rows], mixture[rows, rows], eigvals_only=True, subset_by_index=[k, k]
        )
        dearest = max(dearest, float(top[0]))
    return error + along - total * dearest
