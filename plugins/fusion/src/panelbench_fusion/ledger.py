"""What is left of a budget that is spent adaptively, one account for each path.

Nothing here takes observations or sums; gains come from a policy that sees public data only.
"""

from __future__ import annotations

import numpy as np

ROUNDED_DOWN = 1 - 2.0**-40
ROUNDED_UP = 1 + 2.0**-44
SMALLEST = 1e-140
"""Gains times sensitivity below this are 0: their squares would lose their digits."""


class Ledger:
    """Accounts of Q each, charged q = (g * l2_sensitivity)^2 a step; equations (20) and (21).

    Gains are rounded down, charges up and what is left down, so that the exact sum of the charges,
    and of what the applied gains truly cost, never exceeds Q, whatever is asked for.

    Attributes:
        left: What is left, shape (paths), never negative.
        charged: What each step was charged so far, in order, each of shape (paths).

    Args:
        total: Q, a Gaussian-DP parameter squared.
        l2_sensitivity: Largest L2 norm by which one sensor changes a step's sum.
        paths: Shape of the accounts.
    """

    def __init__(self, total: float, *, l2_sensitivity: float, paths: tuple[int, ...]) -> None:
        if not (np.isfinite(total) and total > 0):
            raise ValueError(f"The total must be positive and finite, got {total}.")
        if not (np.isfinite(l2_sensitivity) and l2_sensitivity > 0):
            raise ValueError(f"l2_sensitivity must be positive and finite, got {l2_sensitivity}.")
        self._l2_sensitivity = l2_sensitivity
        self.left = np.full(paths, total)
        self.charged: list[np.ndarray] = []

    def charge(self, asked: np.ndarray) -> np.ndarray:
        """Clip gains at what is left and charge them; one that is not finite becomes 0.

        Returns:
            The gains to apply, of the shape of the accounts.
        """
        largest = np.sqrt(self.left) / self._l2_sensitivity * ROUNDED_DOWN
        gains = np.where(np.isfinite(asked), asked, 0.0).astype(np.float64)
        gains = np.clip(gains, -largest, largest)
        cost = gains * self._l2_sensitivity
        gains = np.where(np.abs(cost) < SMALLEST, 0.0, gains)
        charge = np.where(gains == 0.0, 0.0, np.square(cost) * ROUNDED_UP)
        left = np.where(charge == 0.0, self.left, np.nextafter(self.left - charge, -np.inf))
        if not (left >= 0).all():
            raise AssertionError("A charge exceeds what is left; this must be impossible.")
        self.left = left
        self.charged.append(charge)
        return gains
