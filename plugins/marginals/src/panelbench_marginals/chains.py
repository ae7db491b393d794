"""The marginals of one quantity over the steps: exact counts, noisy counts, sampling.

Every user adds exactly one count to each marginal.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np


@dataclass(frozen=True, kw_only=True)
class Chain:
    """Counts, or estimates of counts, of one quantity at each step and at each adjacent pair.

    Attributes:
        one: For each step, shape (size of the step,).
        two: For each pair of adjacent steps, shape (size of the first, size of the second).
    """

    one: tuple[np.ndarray, ...]
    two: tuple[np.ndarray, ...]

    @property
    def marginals(self) -> int:
        """Number of marginals."""
        return len(self.one) + len(self.two)

    def vector(self) -> np.ndarray:
        """All counts in one vector."""
        return np.concatenate([count.ravel() for count in (*self.one, *self.two)])


def counted(codes: np.ndarray, sizes: tuple[int, ...]) -> Chain:
    """Exact counts of bin numbers of shape (users, steps), with `sizes` bins at each step."""
    one = [np.bincount(codes[:, k], minlength=size) for k, size in enumerate(sizes)]
    two = [
        np.bincount(codes[:, k] * late + codes[:, k + 1], minlength=early * late).reshape(
            early, late
        )
        for k, (early, late) in enumerate(pairwise(sizes))
    ]
    return Chain(
        one=tuple(count.astype(np.float64) for count in one),
        two=tuple(count.astype(np.float64) for count in two),
    )


def noisy(chain: Chain, stddev: float, rng: np.random.Generator) -> Chain:
    """The counts plus independent Gaussian noise."""

    def plus(counts: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
        return tuple(count + rng.normal(0.0, stddev, count.shape) for count in counts)

    return Chain(one=plus(chain.one), two=plus(chain.two))


def total(chains: list[Chain]) -> float:
    """The number of users that noisy marginals add up to, each weighted by 1 / its cells.

    >>> total([Chain(one=(np.array([1.0, 3.0]),), two=())])
    4.0
    """
    counts = [count for chain in chains for count in (*chain.one, *chain.two)]
    weights = [1 / count.size for count in counts]
    return float(np.average([count.sum() for count in counts], weights=weights))


def sampled(
    fitted: Chain, lengths: np.ndarray, pad: int | None, rng: np.random.Generator
) -> np.ndarray:
    """Draw one sequence of bins for each wanted length from a Markov chain.

    Args:
        fitted: Estimated counts, not negative; only the pairs and the first step are used.
        lengths: Wanted number of rows, shape (tables,).
        pad: Bin that stands for "no row", which is not drawn before a table's length; None if none.
        rng: The source of randomness.

    Returns:
        Shape (tables, steps).
    """
    steps = len(fitted.one)
    codes = np.empty((len(lengths), steps), dtype=np.int64)

    def allowed(weight: np.ndarray) -> np.ndarray:
        weight = np.maximum(weight, 0.0)
        if pad is not None:
            weight[..., pad] = 0.0
        empty = weight.sum(axis=-1, keepdims=True) <= 0
        flat = np.ones(weight.shape[-1])
        if pad is not None:
            flat[pad] = 0.0
        return np.where(empty, flat, weight)

    first = allowed(fitted.one[0].copy())
    codes[:, 0] = rng.choice(len(first), size=len(lengths), p=first / first.sum())
    for k, pair in enumerate(fitted.two):
        steps_on = allowed(pair.copy()).cumsum(axis=1)
        cumulative = (steps_on / steps_on[:, -1:])[codes[:, k]]
        drawn = (rng.random(len(lengths))[:, None] >= cumulative).sum(axis=1)
        codes[:, k + 1] = np.minimum(drawn, pair.shape[1] - 1)
    return codes


def sampled_lengths(
    chains: list[Chain], pad: list[int], *, least: int, count: int, rng: np.random.Generator
) -> np.ndarray:
    """Draw table lengths from the mass of the padding bin, averaged over the chains.

    Args:
        chains: Fitted chains.
        pad: The padding bin of each.
        least: Public smallest length.
        count: How many to draw.
        rng: The source of randomness.
    """
    steps = len(chains[0].one)
    present = np.mean(
        [
            [1 - counts[bin_] / max(counts.sum(), 1e-300) for counts in chain.one]
            for chain, bin_ in zip(chains, pad, strict=True)
        ],
        axis=0,
    )
    present[: min(max(least, 1), steps)] = 1.0
    present = np.minimum.accumulate(np.clip(present, 0.0, 1.0))
    lengths: np.ndarray = (rng.random(count)[:, None] < present).sum(axis=1)
    return lengths
