"""Tables drawn again so that their transitions and pairs of columns are those that were measured.

A weight for each candidate table, exponential in the table's own shares, is the distribution
nearest to that of the candidates (in relative entropy) whose means are the measured ones; each
mean only as closely as its noise allows, which is a quadratic penalty on its multiplier.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize
from scipy.sparse import csr_array

from panelbench_path.layout import FIRST_CATEGORY, MISSING, VOCABULARY

LEAST_EFFECTIVE = 0.5
"""Least effective share of the candidates."""


@dataclass(frozen=True, kw_only=True)
class Statistics:
    """Transitions of each column and pairs of columns in a row, in coarse groups of tokens.

    Attributes:
        groups: Group of each token by column, shape (columns, tokens).
        sizes: Number of groups of each column.
        timed: Whether the first column's first row is something else.
    """

    groups: np.ndarray
    sizes: tuple[int, ...]
    timed: bool

    @classmethod
    def of(cls, bias: np.ndarray, *, columns: int, groups: int, timed: bool) -> Statistics:
        """Groups of about equal measured share, missing values by themselves.

        Args:
            bias: Logarithm of the share of each token by slot, minus infinity for what cannot be.
            columns: Cells in a row.
            groups: Most groups of a column, that of missing values not counted.
            timed: See above.
        """
        table = np.zeros((columns, VOCABULARY), dtype=np.int64)
        sizes = []
        for column in range(columns):
            tokens = np.flatnonzero(np.isfinite(bias[column]))
            shares = np.exp(bias[column, tokens])
            there = tokens != MISSING
            own = np.zeros(len(tokens), dtype=np.int64)
            if there.sum() <= groups:
                own[there] = np.arange(int(there.sum()))
            elif tokens[-1] < FIRST_CATEGORY:
                before = shares[there].cumsum() - shares[there] / 2
                own[there] = (before / shares[there].sum() * groups).astype(np.int64)
            else:
                own[:] = groups - 1
                common = np.argsort(np.where(there, -shares, 0.0), kind="stable")[: groups - 1]
                own[common] = np.arange(len(common))
            own = np.unique(np.where(there, own, groups), return_inverse=True)[1]
            table[column, tokens] = own
            sizes.append(int(own.max()) + 1)
        return cls(groups=table, sizes=tuple(sizes), timed=timed)

    @property
    def count(self) -> int:
        """How many histograms there are; each user adds a mass of at most 1 to each."""
        columns = len(self.sizes)
        return columns + columns * (columns - 1) // 2

    def shares(self, tokens: np.ndarray, lengths: np.ndarray) -> csr_array:
        """Each table's own histograms side by side, shape (tables, bins of all histograms)."""
        columns = len(self.sizes)
        own = np.stack([self.groups[c][tokens[..., c]] for c in range(columns)], axis=-1)
        there = np.arange(tokens.shape[1]) < lengths[:, None]
        untimed = there.copy()
        untimed[:, 0] = False
        places: list[np.ndarray] = []
        users: list[np.ndarray] = []
        weights: list[np.ndarray] = []
        offset = 0

        def add(bins: np.ndarray, valid: np.ndarray) -> None:
            user = np.broadcast_to(np.arange(len(valid))[:, None], valid.shape)[valid]
            places.append(offset + bins[valid])
            users.append(user)
            weights.append(1.0 / valid.sum(axis=1)[user])

        for c in range(columns):
            base = untimed if self.timed and c == 0 else there
            add(own[:, :-1, c] * self.sizes[c] + own[:, 1:, c], base[:, :-1] & there[:, 1:])
            offset += self.sizes[c] ** 2
        for a, b in itertools.combinations(range(columns), 2):
            base = untimed if self.timed and a == 0 else there
            add(own[..., a] * self.sizes[b] + own[..., b], base)
            offset += self.sizes[a] * self.sizes[b]
        index = (np.concatenate(users), np.concatenate(places))
        return csr_array((np.concatenate(weights), index), shape=(len(tokens), offset))


def careful(
    shares: csr_array, target: np.ndarray, error: float, lengths: np.ndarray
) -> tuple[np.ndarray, float]:
    """Weights within lengths that leave many candidates in use, and the share of these.

    Where the weights would rest on few candidates, the measured means are taken for noisier than
    they are until they do not: the release would be copies of few tables else. Weights depend on
    the candidates and released measurements alone.
    """
    while True:
        chances = within_lengths(weights(shares, target, error), lengths)
        share = effective(chances)
        if share >= LEAST_EFFECTIVE:
            return chances, share
        error *= 1.25


def effective(chances: np.ndarray) -> float:
    """How many equal weights would have the same variance, as a share of all."""
    return float(chances.sum() ** 2 / (chances**2).sum() / len(chances))


def weights(shares: csr_array, target: np.ndarray, error: float) -> np.ndarray:
    """Weights of the candidates, adding up to 1.

    Args:
        shares: Of each candidate, shape (candidates, bins).
        target: Measured mean shares.
        error: Standard error of each of them.
    """

    def dual(multipliers: np.ndarray) -> tuple[float, np.ndarray]:
        scores = shares @ multipliers
        top = scores.max()
        chances = np.exp(scores - top)
        total = chances.sum()
        mean = shares.T @ (chances / total)
        value = top + np.log(total / len(scores)) - multipliers @ target
        penalty = error**2 * multipliers
        return float(value + multipliers @ penalty / 2), mean - target + penalty

    start = np.zeros(shares.shape[1])
    found = minimize(dual, start, jac=True, method="L-BFGS-B", options={"maxiter": 200})
    scores = shares @ found.x
    chances = np.exp(scores - scores.max())
    return np.asarray(chances / chances.sum())


def within_lengths(chances: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """The same weights among tables of one length, and each length as often as before."""
    _, at, counts = np.unique(lengths, return_inverse=True, return_counts=True)
    chances = np.maximum(chances, 1e-9 / len(chances))  # else a length may have no weight at all
    found: np.ndarray = chances * (counts / np.bincount(at, weights=chances))[at] / len(lengths)
    return found


def drawn(chances: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """`count` candidates, each taken about count times its weight, and at most once below 1.

    Systematic sampling in random order: a candidate whose expected number is x is taken floor(x)
    or ceil(x) times.
    """
    order = rng.permutation(len(chances))
    edges = chances[order].cumsum() / chances.sum() * count
    marks = np.arange(count) + rng.random()
    at = np.searchsorted(edges, marks, side="right").clip(max=len(order) - 1)
    return np.asarray(order[at])
