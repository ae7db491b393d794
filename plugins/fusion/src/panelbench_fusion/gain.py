"""Gains of the fusion vector, from public arguments only.

Nothing in this module takes observations, sums or estimates of the protected people: the privacy
proof needs every gain to be known before the step's measurement is read.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from panelbench.accounting import mu_allowed

if TYPE_CHECKING:
    from panelbench import Budget

ROUNDED_DOWN = 1 - 2.0**-40
"""A gain may round down, never up."""


def constant_gains(budget: Budget, *, steps: int, l2_sensitivity: float) -> np.ndarray:
    """The same gain at every step, which together spend the budget (to one part in 1e12).

    With noise of standard deviation 1 a step with gain g costs q = (g * l2_sensitivity)^2, and the
    steps compose to mu-GDP with mu^2 = sum of q. For a budget (alpha, B_G) that sum may be
    Q = 2 B_G / alpha, so each step gets B_G / steps.

    Returns:
        Gains, shape (steps,).
    """
    mu = mu_allowed(budget)
    if not math.isfinite(mu):
        raise ValueError("Gains need a limited budget; an unlimited one has no finite gain.")
    return np.full(steps, mu / math.sqrt(steps) / l2_sensitivity * ROUNDED_DOWN)


def spent(gains: np.ndarray, *, l2_sensitivity: float) -> np.ndarray:
    """What each step spends, as a Gaussian-DP parameter squared; shape of `gains`."""
    return np.square(gains * l2_sensitivity)
