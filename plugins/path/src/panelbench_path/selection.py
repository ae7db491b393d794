"""Private selection: users vote for the candidates nearest to their own tables.

The nearest-neighbor histogram of private evolution (Lin et al. 2023, arXiv:2305.15560; Xie et al.
2024, arXiv:2403.01749), with the unit a user.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from panelbench import NeighboringRelation

if TYPE_CHECKING:
    from panelbench_path.serialise import Form

DESCRIPTIONS = ("rows", "course")
CHOICES = ("top", "proportional")
_BLOCK = 4_000_000


def vote_sensitivity(votes: int, relation: NeighboringRelation) -> float:
    """L2 sensitivity of the histogram of votes.

    A user adds one to each of `votes` different candidates: sqrt(votes) under add-or-remove-one.
    Under replace-one up to twice as many bins change by one, some up and some down: sqrt(2 votes).

    >>> vote_sensitivity(10, NeighboringRelation.ADD_OR_REMOVE_ONE) ** 2
    10.000000000000002
    """
    return math.sqrt(votes * (2 if relation is NeighboringRelation.REPLACE_ONE else 1))


def described(tables: list[np.ndarray], form: Form, how: str) -> np.ndarray:
    """One vector for each table, from the table and public facts alone; shape (tables, size).

    Numbers are their place between the public bounds, categories and missing values indicators.

    Args:
        tables: Codes.
        form: Of the tables.
        how: "rows" is the mean row, blind to order as the paper's embedding. "course" adds the
            spread of each part within the table, its mean absolute change, and the first row.
    """
    lengths = np.array([len(table) for table in tables])
    starts = lengths.cumsum() - lengths
    rows = _rows(np.concatenate(tables), form, starts)

    def mean(values: np.ndarray) -> np.ndarray:
        summed = np.add.reduceat(values, starts, axis=0)
        return np.asarray(summed / lengths[:, None])

    center = mean(rows)
    if how == "rows":
        return center
    spread = np.sqrt(np.clip(mean(rows**2) - center**2, 0.0, None))
    steps = np.abs(np.diff(rows, axis=0, prepend=0.0))
    steps[starts] = 0.0
    return np.concatenate([center, spread, mean(steps), rows[starts]], axis=1)


def _rows(codes: np.ndarray, form: Form, starts: np.ndarray) -> np.ndarray:
    parts: list[np.ndarray] = []
    for index, (first, later) in enumerate(zip(form.first, form.later, strict=True)):
        known = len(later.texts) - later.nullable
        own = codes[:, index]
        missing = (own == known) & later.nullable
        if later.numbers is None:
            indicators = own[:, None] == np.arange(len(later.texts))
            parts.append(indicators.astype(np.float64) / math.sqrt(2))
            continue
        sizes = np.full(len(own), float(max(known - 1, 1)))
        if first is not later:
            sizes[starts] = max(len(first.texts) - 1, 1)
        parts.append(np.where(missing, 0.5, own / sizes)[:, None])
        if later.nullable:
            parts.append(missing[:, None].astype(np.float64) / 2)
    return np.concatenate(parts, axis=1)


def votes_of(real: np.ndarray, candidates: np.ndarray, votes: int) -> np.ndarray:
    """How many votes each candidate gets; every user has `votes`, for different candidates.

    Distances are Euclidean between parts scaled by the candidates' own spread, which is released
    data already; nothing about other users enters a user's votes.
    """
    scale = candidates.std(axis=0)
    kept = scale > 1e-9
    real, candidates = real[:, kept] / scale[kept], candidates[:, kept] / scale[kept]
    counts = np.zeros(len(candidates))
    block = max(1, _BLOCK // max(len(candidates), 1))
    square = (candidates**2).sum(axis=1)
    for first in range(0, len(real), block):
        gaps = square - 2 * real[first : first + block] @ candidates.T
        near = np.argpartition(gaps, votes - 1, axis=1)[:, :votes]
        counts += np.bincount(near.ravel(), minlength=len(candidates))
    return counts


def chosen(noisy: np.ndarray, count: int, how: str, rng: np.random.Generator) -> np.ndarray:
    """Indices of the candidates that are kept, from noisy votes.

    Args:
        noisy: Votes with noise.
        count: How many to keep.
        how: "top" keeps those with most votes, as the paper does. "proportional" draws candidates
            without repetition, with probability proportional to their votes, where positive.
        rng: The source of randomness.
    """
    if how == "top":
        return np.sort(np.argsort(-noisy, kind="stable")[:count])
    weight = np.clip(noisy, 0.0, None) + 1e-9 * max(float(noisy.max(initial=0.0)), 1.0)
    keys = rng.exponential(size=len(weight)) / weight  # the smallest are such a draw
    return np.sort(np.argsort(keys, kind="stable")[:count])
