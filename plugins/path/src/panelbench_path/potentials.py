"""What measured transitions and pairs say about the next cell, as scores of its tokens.

For each cell there are two: the logarithm of how much more often a token follows the one above it
than by chance, and the sum of the same for the earlier cells of the row. The model adds each times
a weight that is tuned with the rest, so that what was measured once need not be learnt again from
noisy gradients.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from panelbench_path.layout import NONE, VOCABULARY

if TYPE_CHECKING:
    from panelbench_path.tilting import Statistics

LARGEST = 3.0


@dataclass(frozen=True, kw_only=True)
class Potentials:
    """Scores by the token that is already there.

    Attributes:
        above: Shape (columns, tokens above, tokens).
        row: Shape (columns, columns, earlier tokens, tokens); the earlier column comes first.
    """

    above: np.ndarray
    row: np.ndarray

    @classmethod
    def of(cls, statistics: Statistics, sums: np.ndarray, stddev: float) -> Potentials:
        """From noisy histograms side by side, in the order of `Statistics.shares`."""
        columns = len(statistics.sizes)
        above = np.zeros((columns, VOCABULARY, VOCABULARY), dtype=np.float32)
        row = np.zeros((columns, columns, VOCABULARY, VOCABULARY), dtype=np.float32)
        offset = 0

        def spread(first: int, second: int) -> np.ndarray:
            nonlocal offset
            shape = statistics.sizes[first], statistics.sizes[second]
            block = sums[offset : offset + shape[0] * shape[1]].reshape(shape)
            offset += block.size
            scores = lifts(block, stddev)[
                np.ix_(statistics.groups[first], statistics.groups[second])
            ]
            scores[NONE] = 0.0
            return scores

        for column in range(columns):
            above[column] = spread(column, column)
        for first, second in itertools.combinations(range(columns), 2):
            row[first, second] = spread(first, second)
        return cls(above=above, row=row)

    def scores(self, read: dict[str, np.ndarray]) -> np.ndarray:
        """Both scores for windows of tables.

        Args:
            read: What `layout.neighbors` gives.

        Returns:
            Shape (tables, places, tokens, 2).
        """
        columns = len(self.above)
        slot = np.where(read["slot"] == columns, 0, read["slot"])
        before = np.where(read["slot"] == columns, NONE, read["target"])
        before = before.reshape(len(before), -1, columns)
        found = np.zeros((*slot.shape, VOCABULARY, 2), dtype=np.float32)
        found[..., 0] = self.above[slot, read["above"]]
        within = found.reshape(len(before), -1, columns, VOCABULARY, 2)
        for first, second in itertools.combinations(range(columns), 2):
            within[:, :, second, :, 1] += self.row[first, second][before[..., first]]
        for second in range(1, columns):
            within[:, :, second, :, 1] /= second**0.5
        return found

    def at(self, column: int, above: np.ndarray, earlier: np.ndarray) -> np.ndarray:
        """Both scores for one cell of some tables, shape (tables, tokens, 2).

        Args:
            column: Which cell of the row.
            above: Tokens above it, shape (tables,).
            earlier: Tokens of the row before it, shape (tables, column).
        """
        found = np.zeros((len(above), VOCABULARY, 2), dtype=np.float32)
        found[..., 0] = self.above[column, above]
        for first in range(column):
            found[..., 1] += self.row[first, column][earlier[:, first]] / column**0.5
        return found


def lifts(block: np.ndarray, stddev: float) -> np.ndarray:
    """Logarithms of how much more mass each cell has than by chance, shrunk as noise demands.

    What differs from independence is multiplied by the James-Stein factor, one minus the expected
    square of noise over the observed square.
    """
    solid = np.maximum(block, 0.0)
    total = max(float(solid.sum()), 1e-9)
    chance = solid.sum(axis=1, keepdims=True) * solid.sum(axis=0, keepdims=True) / total
    differs = solid - chance
    observed = float((differs**2).sum())
    kept = max(0.0, 1 - differs.size * stddev**2 / observed) if observed > 0 else 0.0
    smooth = 0.5 + stddev / 2
    found = np.log((np.maximum(chance + kept * differs, 0.0) + smooth) / (chance + smooth))
    return np.asarray(np.clip(found, -LARGEST, LARGEST))
