"""Closed-form conversions among Gaussian, Renyi, concentrated and approximate privacy.

`accounting` passes these on; plugins import them from there.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.optimize import brentq, minimize_scalar
from scipy.special import erfcx, ndtr, ndtri

from panelbench.errors import BudgetError

if TYPE_CHECKING:
    from collections.abc import Callable

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(24)


def gaussian_delta(mu: float, epsilon: float) -> float:
    """The smallest delta at which a mu-GDP Gaussian mechanism is (epsilon, delta)-DP.

    Theorem 8 of Balle and Wang 2018, written with the Mills ratio so that nothing cancels.

    >>> round(gaussian_delta(1.0, 1.0), 6)
    0.126937
    """
    _require(mu >= 0 and epsilon >= 0, f"mu and epsilon must be >= 0, got {mu} and {epsilon}")
    if mu == 0:
        return 0.0
    if math.isinf(mu):
        return 1.0
    low, high = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    density = math.exp(-low * low / 2) / math.sqrt(2 * math.pi)
    if mu < 1:  # M(low) - M(high) cancels; integrate -M'(x) = 1 - x M(x) > 0 instead
        x = (low + high) / 2 + mu / 2 * _NODES
        return float(density * mu / 2 * (_WEIGHTS @ (1 - x * _mills(x))))
    if low > 0:
        return float(density * (_mills(low) - _mills(high)))
    return float(ndtr(-low) - density * _mills(high))


def gaussian_epsilon(mu: float, delta: float) -> float:
    """The smallest epsilon at which a mu-GDP Gaussian mechanism is (epsilon, delta)-DP.

    >>> round(gaussian_epsilon(1.0, 1e-5), 2)
    4.38
    """
    _delta(delta)
    if math.isinf(mu):
        return math.inf
    if gaussian_delta(mu, 0.0) <= delta:
        return 0.0
    # delta(epsilon) <= Phi(mu / 2 - epsilon / mu), which bounds the root from above
    upper = max(0.0, mu * (mu / 2 - float(ndtri(delta)))) * (1 + 1e-12) + 1e-300
    return crossing(lambda epsilon: _log(gaussian_delta(mu, epsilon)) - math.log(delta), 0.0, upper)


def gaussian_mu(epsilon: float, delta: float) -> float:
    """The largest mu at which a mu-GDP Gaussian mechanism is (epsilon, delta)-DP.

    >>> round(gaussian_mu(1.0, 1e-5), 4)
    0.2681
    """
    _delta(delta)
    _require(epsilon >= 0, f"epsilon must be >= 0, got {epsilon}")
    if math.isinf(epsilon):
        return math.inf
    z = -float(ndtri(delta))
    root = math.sqrt(z * z + 2 * epsilon)
    lower = 2 * epsilon / (z + root) if z > 0 else root - z
    lower = lower * (1 - 1e-12) if lower > 0 else min(delta, 1e-12)
    upper = 2 * lower + delta
    while gaussian_delta(upper, epsilon) < delta:
        upper *= 2
    return crossing(lambda mu: _log(gaussian_delta(mu, epsilon)) - math.log(delta), lower, upper)


def renyi_epsilon_mironov(alpha: float, b_g: float, delta: float) -> float:
    """Epsilon of (alpha, b_g)-RDP at delta by Proposition 3 of Mironov 2017.

    >>> round(renyi_epsilon_mironov(2.0, 1.5, 1e-5), 2)
    13.01
    """
    _order(alpha)
    _delta(delta)
    return b_g - math.log(delta) / (alpha - 1)


def renyi_epsilon(alpha: float, b_g: float, delta: float) -> float:
    """Epsilon of (alpha, b_g)-RDP at delta by Proposition 12 of Canonne, Kamath and Steinke 2020.

    The same as Theorem 21 of Balle et al. 2020.

    >>> round(renyi_epsilon(2.0, 1.5, 1e-5), 2)
    11.63
    """
    _order(alpha)
    _delta(delta)
    loss = b_g + math.log1p(-1 / alpha) - (math.log(delta) + math.log(alpha)) / (alpha - 1)
    return max(0.0, loss)


def zcdp_epsilon(rho: float, delta: float) -> float:
    """Epsilon of rho-zCDP at delta: `renyi_epsilon` of (alpha, alpha rho) at the best order.

    >>> round(zcdp_epsilon(0.75, 1e-5), 2)
    5.98
    """
    _delta(delta)
    _require(rho >= 0, f"rho must be >= 0, got {rho}")
    if rho == 0 or math.isinf(rho):
        return rho

    def loss(log_excess: float) -> float:
        alpha = 1 + math.exp(log_excess)
        return renyi_epsilon(alpha, alpha * rho, delta)

    middle = math.log(-math.log(delta) / rho) / 2
    grid = np.linspace(middle - 6, middle + 6, 121)
    near = grid[int(np.argmin([loss(x) for x in grid]))]
    best = minimize_scalar(loss, bounds=(near - 0.2, near + 0.2), method="bounded")
    return float(min(loss(near), best.fun))


def _mills(x: Any) -> Any:  # noqa: ANN401 - a number or an array
    return math.sqrt(math.pi / 2) * erfcx(x / math.sqrt(2))


def _log(value: float) -> float:
    return math.log(value) if value > 0 else -math.inf


def crossing(
    function: Callable[[float], float], lower: float, upper: float, *, absolute: float = 1e-300
) -> float:
    """Where a monotone function crosses 0 between `lower` and `upper`; it may be infinite."""

    def finite(x: float) -> float:
        return min(max(function(x), -1e6), 1e6)  # brentq cannot interpolate infinities

    if finite(lower) >= 0 and finite(upper) >= 0:
        return lower
    return float(brentq(finite, lower, upper, xtol=absolute, rtol=1e-14, maxiter=500))


def _require(condition: bool, message: str) -> None:  # noqa: FBT001 - a check
    if not condition:
        raise BudgetError(f"{message}.")


def _delta(delta: float) -> None:
    _require(0 < delta < 1, f"delta must lie strictly between 0 and 1, got {delta}")


def _order(alpha: float) -> None:
    _require(1 < alpha < math.inf, f"alpha must be a finite number above 1, got {alpha}")
