"""The error that a Gaussian model expects of a causal linear channel, and its gradient.

Everything here comes from training windows and the budget: no module that chooses a channel can
see a protected report.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.linalg import cholesky, solve_triangular

if TYPE_CHECKING:
    from panelbench_fusion.estimator import Moments


@dataclass(frozen=True, kw_only=True)
class Model:
    """Second moments of the state X and the unit sums S over one window.

    Attributes:
        variance: Of the state, shape (steps,).
        of_sums: Covariance of the sums in time order, shape (steps * size, steps * size).
        with_state: Covariance of the sums with the state, shape (steps * size, steps).
        lag: Steps that an estimate may wait.
    """

    variance: np.ndarray
    of_sums: np.ndarray
    with_state: np.ndarray
    lag: int = 0

    @classmethod
    def of(cls, moments: Moments, *, lag: int = 0) -> Model:
        """The model with these moments."""
        steps = moments.mean.shape[0]
        return cls(
            variance=moments.covariance[np.arange(steps), 0, np.arange(steps), 0],
            of_sums=moments.of_sums,
            with_state=moments.with_state,
            lag=lag,
        )

    @property
    def steps(self) -> int:
        """Number of steps."""
        return len(self.variance)

    @property
    def size(self) -> int:
        """Number of coordinates of a sum."""
        return len(self.of_sums) // self.steps

    def error(self, channel: np.ndarray) -> tuple[float, np.ndarray]:
        """Mean error of the best causal filter behind Z = channel S + W, W standard normal.

        With F the best filter the error is that of F, and F is a stationary point, so the
        gradient is the partial one at F: 2/K (F^T F A cov(S) - F^T cov(X, S)).

        Args:
            channel: A, shape (steps * rows, numbers in a window), rows in time order.

        Returns:
            The mean over steps of var(X_k | Z_1 .. Z_(k + lag)), and its gradient in A.
        """
        steps = self.steps
        passed = channel @ self.of_sums
        of_outputs = passed @ channel.T
        of_outputs[np.diag_indices(len(channel))] += 1.0
        lower = cholesky(of_outputs, lower=True, check_finite=False)
        innovation = solve_triangular(
            lower, channel @ self.with_state, lower=True, check_finite=False
        )
        innovation[
            np.repeat(np.arange(steps), len(channel) // steps)[:, None]
            > np.arange(steps) + self.lag
        ] = 0.0
        value = float(np.mean(self.variance) - np.sum(innovation**2) / steps)
        weight = solve_triangular(lower, innovation, lower=True, trans="T", check_finite=False)
        gradient = weight @ (weight.T @ passed - self.with_state.T) * (2 / steps)
        return value, gradient
