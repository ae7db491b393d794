"""Optimal gains of a memoryless channel for a Gaussian model: a convex program."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.optimize import minimize
from scipy.special import softmax

if TYPE_CHECKING:
    from collections.abc import Callable

    from panelbench_fusion.model import Model

TINIEST = 1e-12
"""Share of the budget below which a gain no longer matters."""


def least(
    loss: Callable[[np.ndarray], tuple[float, np.ndarray]],
    start: np.ndarray,
    *,
    iterations: int,
    tolerance: float,
) -> np.ndarray:
    """Where L-BFGS ends on a loss that comes with its gradient."""
    options: Any = {"maxiter": iterations, "ftol": tolerance, "gtol": 1e-9}
    found = minimize(loss, start, jac=True, method="L-BFGS-B", options=options)
    return np.asarray(found.x)


def optimal_costs(
    model: Model, total: float, *, iterations: int = 300, shared: bool = False
) -> np.ndarray:
    """What each step and coordinate should spend so that the expected error is least.

    The error is convex in the costs q (it is a matrix inverse of an affine function of q), so the
    minimum over q >= 0 with sum q = `total` is one. It is found by L-BFGS over q = total *
    softmax(t).

    Args:
        model: The Gaussian model.
        total: What all steps and coordinates may spend together (Q).
        iterations: Most iterations of L-BFGS.
        shared: All coordinates of a step have one gain, and its square is what the step spends.

    Returns:
        Squared gains, shape (steps, size), or (steps, 1) where they are shared.
    """
    together = model.size if shared else 1

    def loss(logits: np.ndarray) -> tuple[float, np.ndarray]:
        share = softmax(logits)
        gains = np.repeat(np.sqrt(total * share), together)
        error, gradient = model.error(np.diag(gains))
        by_gain = np.diag(gradient) * gains / 2  # d error / d log q
        by_share = by_gain.reshape(-1, together).sum(axis=1)
        return error / scale, (by_share - share * by_share.sum()) / scale

    count = model.steps * model.size // together
    scale, _ = model.error(np.diag(np.full(count * together, math.sqrt(total / count))))
    share = softmax(least(loss, np.zeros(count), iterations=iterations, tolerance=1e-12))
    share = np.where(share < TINIEST, 0.0, share)
    costs: np.ndarray = (total * share / share.sum()).reshape(model.steps, -1)
    return costs


def certified_bound(model: Model, costs: np.ndarray) -> float:
    """A lower bound on the expected error of every memoryless channel that spends as much.

    By convexity no costs q' with the same total do better than error(q) + gradient . (q' - q),
    and the least of that is where all is spent on the coordinate with the smallest gradient.

    Args:
        model: The Gaussian model.
        costs: Positive squared gains q, shape (steps, size), best close to the optimum.
    """
    flat = np.maximum(costs.ravel(), TINIEST)
    gains = np.sqrt(flat)
    error, gradient = model.error(np.diag(gains))
    by_cost = np.diag(gradient) / (2 * gains)
    return float(error - by_cost @ flat + flat.sum() * by_cost.min())
