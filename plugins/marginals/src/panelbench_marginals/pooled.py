"""Histograms pooled over the steps, to which every user adds a total of at most 1."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from panelbench.flatten import Wide


def pooled(
    kinds: np.ndarray,
    parts: list[tuple[np.ndarray, int]],
    valid: np.ndarray,
    *,
    types: int,
) -> np.ndarray:
    """Count combinations of bins, each user's weighted so that they add up to 1.

    Args:
        kinds: The type of each user, shape (users,).
        parts: Bin numbers of shape (users, places) and how many bins there are, for each axis.
        valid: Which places count, shape (users, places).
        types: How many types there are.

    Returns:
        Shape (types, bins of each part...). A user adds at most 1 in all, so the L2 sensitivity is
        1 under add-or-remove-one and sqrt(2) under replace-one.
    """
    shape = (types, *(size for _, size in parts))
    weight = valid / np.maximum(valid.sum(axis=1), 1)[:, None]
    at = np.broadcast_to(kinds[:, None], valid.shape)
    for codes, size in parts:
        at = at * size + codes
    flat = np.bincount(at[valid], weights=weight[valid], minlength=int(np.prod(shape)))
    return np.asarray(flat.reshape(shape), dtype=np.float64)


def initial(wide: Wide, codes: np.ndarray, size: int, kinds: np.ndarray, types: int) -> np.ndarray:
    """The first row's bins, shape (types, size)."""
    return pooled(kinds, [(codes[:, :1], size)], wide.present[:, :1], types=types)


def transitions(
    wide: Wide, codes: np.ndarray, size: int, kinds: np.ndarray, types: int, *, first: int = 0
) -> np.ndarray:
    """Bins of adjacent rows from row `first` on, shape (types, size, size)."""
    early, late = codes[:, first:-1], codes[:, first + 1 :]
    return pooled(kinds, [(early, size), (late, size)], wide.present[:, first + 1 :], types=types)


def second_order(
    wide: Wide, codes: np.ndarray, size: int, kinds: np.ndarray, types: int, *, contexts: int
) -> np.ndarray:
    """Three adjacent rows, the first in coarse bins, shape (types, contexts, size, size)."""
    coarse = codes[:, :-2] * contexts // size
    parts = [(coarse, contexts), (codes[:, 1:-1], size), (codes[:, 2:], size)]
    return pooled(kinds, parts, wide.present[:, 2:], types=types)


def within_rows(
    wide: Wide,
    one: tuple[np.ndarray, int],
    two: tuple[np.ndarray, int],
    kinds: np.ndarray,
    types: int,
) -> np.ndarray:
    """Bins of two columns in one row, shape (types, size of one, size of two)."""
    return pooled(kinds, [one, two], wide.present, types=types)


def onto_simplex(noisy: np.ndarray, total: float) -> np.ndarray:
    """The nearest non-negative numbers that add up to `total`.

    >>> onto_simplex(np.array([3.0, 1.0, -2.0]), 2.0)
    array([2., 0., 0.])
    """
    flat = np.sort(noisy.ravel())[::-1]
    excess = (np.cumsum(flat) - total) / np.arange(1, flat.size + 1)
    last = np.flatnonzero(flat > excess)
    threshold = excess[last[-1]] if len(last) else flat[0]
    return np.asarray(np.maximum(noisy - threshold, 0.0))
