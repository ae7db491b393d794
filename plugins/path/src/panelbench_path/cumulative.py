"""Noisy cumulative histograms whose error grows with the logarithm of the number of cells only.

Prefix sums are answered through the square root R of the prefix-sum matrix (R R = prefix sums;
Fichtenberger, Henzinger and Upadhyay 2023, arXiv:2202.11205): noise is added to R h, and R applied
once more. Each entry then has the error of about 1 + ln(cells) / pi plain counts, where summing a
plain noisy histogram has that of the square root of the number of cells.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.linalg import toeplitz
from scipy.optimize import isotonic_regression
from scipy.special import ndtr, ndtri

TAIL_ERRORS = 2.0
"""Shares below so many standard errors are noise for the most part: a tail is made up there."""
LARGEST_TAIL = 0.1
BODY = 5
"""The tail is a normal one that continues the shares up to so many times as large."""


@lru_cache(maxsize=8)
def root(size: int) -> np.ndarray:
    """The lower triangular R of shape (size, size) with R @ R the matrix of prefix sums.

    >>> root(3) @ root(3)
    array([[1., 0., 0.],
           [1., 1., 0.],
           [1., 1., 1.]])
    """
    steps = np.arange(1, size)
    first = np.cumprod(np.concatenate([[1.0], (2 * steps - 1) / (2 * steps)]))
    return np.tril(toeplitz(first))


def l2_sensitivity(size: int) -> float:
    """L2 norm of R h for an h >= 0 that adds up to 1, at most.

    It is convex in h, so a unit vector attains it: the first column of R is the longest. All
    entries of R h are non-negative, so that two such vectors differ by at most sqrt(2) times it.
    """
    return float(np.linalg.norm(root(size)[:, 0]))


@dataclass(frozen=True, kw_only=True)
class Cumulative:
    """A measured distribution on ordered cells.

    Attributes:
        total: Noisy number of users in it, of mass 1 each.
        cdf: Shares up to each edge, shape (cells + 1,), increasing from 0 to 1.
    """

    total: float
    cdf: np.ndarray

    @property
    def shares(self) -> np.ndarray:
        """The share of each cell."""
        return np.diff(self.cdf)


def measured(histogram: np.ndarray, *, stddev: float, rng: np.random.Generator) -> Cumulative:
    """Measure a histogram to which each user adds a mass of at most 1.

    Args:
        histogram: Exact masses, shape (cells,).
        stddev: Standard deviation of the noise on each entry of R h.
        rng: The source of randomness.
    """
    matrix = root(len(histogram))
    noisy = matrix @ histogram + stddev * rng.standard_normal(len(histogram))
    sums = matrix @ noisy
    total = max(float(sums[-1]), 1.0)
    error = TAIL_ERRORS * stddev * l2_sensitivity(len(histogram)) / total
    shares = np.asarray(isotonic_regression(sums / total).x)
    cdf = np.clip(np.concatenate([[0.0], shares]), 0.0, 1.0)
    cdf[-1] = 1.0
    margin = min(error, LARGEST_TAIL)
    cdf = 1.0 - _tail(1.0 - _tail(cdf, margin)[::-1], margin)[::-1]
    cdf[0], cdf[-1] = 0.0, 1.0
    return Cumulative(total=total, cdf=cdf)


def _tail(cdf: np.ndarray, margin: float) -> np.ndarray:
    """The same, with a normal lower tail below the share `margin`."""
    if not margin > 0:
        return cdf
    levels = margin * np.linspace(1, BODY, 4 * BODY)
    slope, middle = np.polyfit(ndtri(levels), np.interp(levels, cdf, np.arange(len(cdf))), 1)
    end = int(np.argmax(cdf >= margin))
    made_up = ndtr((np.arange(end) - middle) / max(float(slope), 1e-9))
    return np.concatenate([np.minimum(made_up, cdf[end]), cdf[end:]])
