"""Cells of a table as tokens: the public vocabulary, and what the model reads at each place."""

from __future__ import annotations

import numpy as np

NONE, MISSING = 0, 1
BINS = 32
CATEGORIES = 64
FIRST_BIN = 2
FIRST_CATEGORY = FIRST_BIN + BINS
VOCABULARY = FIRST_CATEGORY + CATEGORIES
SLOTS = 48
"""Most kinds of cells in a row, the time of the first row counted extra."""


def bin_tokens(count: int) -> np.ndarray:
    """Tokens of `count` ordered bins, spread evenly over those there are.

    >>> bin_tokens(3)
    array([ 2, 18, 33])
    """
    return FIRST_BIN + np.round(np.linspace(0, BINS - 1, count)).astype(np.int64)


def neighbors(
    tokens: np.ndarray, rows: np.ndarray, *, starts: np.ndarray, window: int, clock: bool = False
) -> dict[str, np.ndarray]:
    """What each position of the model reads, in a window of rows of each table.

    Args:
        tokens: Shape (tables, rows, columns).
        rows: Number of rows of each table.
        starts: First row of each window; what lies before it is seen as a neighbor only.
        window: Most rows of a window.
        clock: Whether the first column is a time, of the day in the first row and since the row
            before in the others, so that the first row's has a slot of its own (the last) and says
            nothing about the second's.

    Returns:
        Arrays of shape (tables, places) by the names of `transformer.Cells`; as many places as the
        longest window here has.
    """
    tables, most, columns = tokens.shape
    there = np.arange(most) < rows[:, None]
    kept = np.where(there[..., None], tokens, NONE)
    left = np.zeros((tables, most * columns), dtype=kept.dtype)
    left[:, 1:] = kept.reshape(tables, -1)[:, :-1]
    above, beyond = np.zeros_like(kept), np.zeros_like(kept)
    above[:, 1:], beyond[:, 2:] = kept[:, :-1], kept[:, :-2]
    slot = np.broadcast_to(np.arange(columns), kept.shape).copy()
    if clock:
        above[:, 1:2, 0] = beyond[:, 2:3, 0] = NONE
        slot[:, 0, 0] = columns
    longest = int(np.minimum(rows - starts, window).max(initial=1))
    at = starts[:, None] + np.arange(longest)
    outside = at >= np.minimum(rows, starts + window)[:, None]
    at = np.minimum(at, most - 1)[..., None]
    read = {"target": kept, "left": left.reshape(kept.shape), "above": above, "beyond": beyond}
    cut = {name: np.take_along_axis(array, at, axis=1) for name, array in read.items()}
    cut["target"] = np.where(outside[..., None], NONE, cut["target"])
    cut["slot"] = np.take_along_axis(slot, at, axis=1)
    return {name: array.reshape(tables, -1) for name, array in cut.items()}
