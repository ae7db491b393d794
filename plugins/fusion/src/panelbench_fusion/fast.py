"""FAST: the sampling interval follows the surprise of the last samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from panelbench_fusion.pursuit import Decision, Pursuit

if TYPE_CHECKING:
    from panelbench_fusion.estimator import Moments


@dataclass(frozen=True, kw_only=True)
class Fast(Pursuit):
    """Adaptive sampling by a PID controller, after Fan and Xiong 2012 (arXiv:1202.3461).

    At most `samples` steps are released, each with an equal part of the budget. After a sample the
    controller takes by how much it moved the estimate, over the standard deviation of the state in
    training windows, as its error; the interval to the next sample grows where the error is below
    the set point and shrinks where it is above. The original has Laplace noise and a Kalman filter
    of a random walk; here noise is Gaussian and the filter is that of all mechanisms.

    Formal guarantee:
        Privacy unit: everything one sensor reports in one test window. Relation: the budget's; the
        L2 sensitivity of S_k is 1 under both (`Feature.l2_sensitivity`). Public: as in `uniform`.
        The controller sees released values only, so it costs nothing: q_k = g_k^2 is a function of
        Z_1 .. Z_(k-1), and `ledger.Ledger` keeps its sum at Q = 2 B_G / alpha or less on every
        path. Theorem: fully adaptive composition of Gaussian mechanisms, whose sum of q_k is
        bounded on every path, is mu-GDP with mu^2 = Q (Smith and Thakurta 2022,
        arXiv:2210.17520), hence (alpha, B_G)-RDP. Estimates are post-processing.

    Attributes:
        samples: Most samples in a window.
        proportional: Weight of the last error.
        integral: Weight of the mean of the last five errors.
        derivative: Weight of the change of the error for each step between the samples.
        set_point: The error at which the interval stays as it is.
        pace: Steps by which the interval grows where the error is 0, over 1 - 1/e.
        draws: As in `Pursuit`.
        count_weight: As in `Pursuit`.
        values: As in `Pursuit`.
        trip_windows: As in `Pursuit`.
    """

    name: ClassVar[str] = "fast"

    samples: int = 20
    proportional: float = 0.9
    integral: float = 0.1
    derivative: float = 0.0
    set_point: float = 0.1
    pace: float = 5.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.samples < 1:
            raise ValueError(f"samples must be at least 1, got {self.samples}.")
        for name in ("set_point", "pace"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be positive, got {getattr(self, name)}.")

    def decision(self, total: float, moments: Moments, paths: tuple[int, ...]) -> Decision:
        """The controller."""
        return _Controller(self, total, float(moments.covariance[0, 0, 0, 0]) ** 0.5, paths)


WINDOW = 5
"""Errors that the integral part looks back on."""


class _Controller(Decision):
    """One controller for each path."""

    def __init__(self, how: Fast, total: float, unit: float, paths: tuple[int, ...]) -> None:
        self._how, self._share, self._unit = how, total / how.samples, max(unit, 1e-12)
        self._interval = np.ones(paths)
        self._due = np.zeros(paths)
        self._last = np.full(paths, -1.0)
        self._left = np.full(paths, how.samples)
        self._errors = np.zeros((WINDOW, *paths))  # the latest first

    def ask(self, k: int, tested: np.ndarray) -> np.ndarray:  # noqa: ARG002 - no test is made
        sampled = (k >= self._due) & (self._left > 0)
        return np.where(sampled, self._share, 0.0)

    def hear(
        self,
        k: int,
        gains: np.ndarray,
        outputs: np.ndarray,  # noqa: ARG002 - the change of the estimate says it all
        change: np.ndarray,
    ) -> None:
        sampled, how = gains > 0, self._how
        error = np.abs(change) / self._unit
        errors = np.concatenate([error[None], self._errors[:-1]])
        signal = (
            how.proportional * error
            + how.integral * errors.mean(axis=0)
            + how.derivative * (error - self._errors[0]) / (k - self._last)
        )
        growth = how.pace * (1 - np.exp(np.minimum((signal - how.set_point) / how.set_point, 5)))
        self._interval = np.where(sampled, np.maximum(1.0, self._interval + growth), self._interval)
        self._errors = np.where(sampled, errors, self._errors)
        self._due = np.where(sampled, k + np.round(self._interval), self._due)
        self._last = np.where(sampled, k, self._last)
        self._left = self._left - sampled
