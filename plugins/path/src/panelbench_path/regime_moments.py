"""What one user adds to a step of expectation maximization, as one vector of bounded length.

The M step needs sums of these vectors only, so noise on the sums makes every step private; all that
follows from them is post-processing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from panelbench_path.regime_model import Chain, emissions, innovations, posteriors

if TYPE_CHECKING:
    from panelbench_path.regime_model import Pattern, Rows

Parts = dict[str, np.ndarray]


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Which sums are in the vector, and how much each weighs against the same noise.

    Attributes:
        regimes: Number of regimes.
        columns: Number of numeric columns.
        sizes: Number of codes of each categorical column.
        whole: Whether transitions, squares and memory are in it; without them regimes are only
            told apart, with less noise.
    """

    regimes: int
    columns: int
    sizes: tuple[int, ...]
    whole: bool

    @property
    def triangle(self) -> tuple[np.ndarray, np.ndarray]:
        """Rows and columns of the entries of a symmetric matrix that are kept."""
        return np.triu_indices(self.columns)

    @property
    def twice(self) -> np.ndarray:
        """Root of how often each of these entries occurs."""
        rows, columns = self.triangle
        return np.where(rows == columns, 1.0, math.sqrt(2))

    @property
    def blocks(self) -> dict[str, tuple[tuple[int, ...], float]]:
        """Shape and weight of each sum; weights bring all to a similar length."""
        regimes, columns = self.regimes, self.columns
        some = 1 / math.sqrt(max(columns, 1))
        found: dict[str, tuple[tuple[int, ...], float]] = {"share": ((regimes,), 1.0)}
        found["mean"] = (regimes, columns), some
        found["missing"] = (regimes, columns, 4, 2), some
        for number, size in enumerate(self.sizes):
            found[f"table {number}"] = (regimes, size), 1.0
        if self.whole:
            found["initial"] = (regimes,), 1.0
            found["transition"] = (regimes, regimes), 1.0
            found["square"] = (regimes, len(self.twice)), some**2
            found["memory"] = (columns, 2), some
            found["sticky"] = (len(self.sizes),), 1 / math.sqrt(max(len(self.sizes), 1))
        return found

    @property
    def entries(self) -> int:
        """Length of the vector."""
        return sum(math.prod(shape) for shape, _ in self.blocks.values())

    def joined(self, parts: Parts) -> np.ndarray:
        """The vectors of parts of shape (users, *shape), shape (users, entries)."""
        users = len(parts["share"])
        return np.concatenate(
            [parts[name].reshape(users, -1) * weight for name, (_, weight) in self.blocks.items()],
            axis=1,
        )

    def split(self, vector: np.ndarray) -> Parts:
        """The parts of one vector."""
        found, start = {}, 0
        for name, (shape, weight) in self.blocks.items():
            end = start + math.prod(shape)
            found[name] = vector[start:end].reshape(shape) / weight
            start = end
        return found


def contributions(
    model: Chain, rows: Rows, patterns: list[Pattern], layout: Layout
) -> tuple[np.ndarray, np.ndarray]:
    """Each user's expected sums under the model, every user counted with weight 1.

    Returns:
        Vectors of shape (users, entries), not yet clipped, and each user's log-likelihood.
    """
    if not len(rows.lengths):
        return np.zeros((0, layout.entries)), np.zeros(0)
    found = emissions(model, rows, patterns)
    chances, moves, likelihood = posteriors(model, found, rows.lengths)
    starts = rows.starts
    row_weight = 1.0 / np.repeat(rows.lengths, rows.lengths)
    later = np.ones(len(row_weight))
    later[starts] = 0.0
    later /= np.repeat(np.maximum(rows.lengths - 1, 1), rows.lengths)
    weighted = chances * row_weight[:, None]
    parts: Parts = {
        "share": rows.by_user(weighted),
        "initial": chances[starts],
        "transition": moves,
    }
    parts |= _numbers(model, rows, patterns, layout, weighted)
    if layout.whole:
        left = rows.scores - chances @ model.means
        left[np.isnan(left) | rows.blank] = 0.0
        pulled = row_weight[:, None, None] * left[..., None] * rows.memory
        parts["memory"] = rows.by_user(pulled)
    gone = np.isnan(rows.scores)
    cases = np.eye(8)[2 * rows.state + gone]
    once = later.copy()
    once[starts] = 1.0
    parts["missing"] = np.stack(
        [
            rows.by_user((once * chances[:, k])[:, None, None] * cases)
            for k in range(layout.regimes)
        ],
        axis=1,
    )
    stays = []
    for number, size in enumerate(layout.sizes):
        codes, above = rows.codes[number], rows.codes_above[number]
        sticky, own = model.sticky[number], model.tables[number][:, codes].T
        stay = sticky * ((codes == above) & (above >= 0))[:, None]
        stay = stay / (stay + (1 - sticky) * own)
        stays.append(rows.by_user((chances * stay).sum(axis=1) * later)[:, 0])
        one = np.eye(size)[codes] * (codes >= 0)[:, None]
        parts[f"table {number}"] = np.stack(
            [
                rows.by_user((weighted[:, k] * (1 - stay[:, k]))[:, None] * one)
                for k in range(layout.regimes)
            ],
            axis=1,
        )
    parts["sticky"] = np.stack(stays, axis=1) if stays else np.zeros((len(rows.lengths), 0))
    return layout.joined(parts), likelihood


def _numbers(
    model: Chain, rows: Rows, patterns: list[Pattern], layout: Layout, weighted: np.ndarray
) -> Parts:
    """First and second moments of the innovations; what is not seen is expected given the rest."""
    left = innovations(model, rows)
    first, second = layout.triangle
    means, squares = [], []
    for k in range(layout.regimes):
        expected, unsure = np.empty(left.shape), {}
        covariance = model.covariances[k]
        for number, (own, gone, blank) in enumerate(patterns):
            if not (gone.any() or blank.any()):
                expected[own] = left[own]
                continue
            seen = ~gone
            variance = (covariance + model.unknown(blank))[np.ix_(seen, seen)]
            gain = np.linalg.solve(variance, covariance[seen])
            differs = left[own][:, seen] - model.means[k, seen]
            expected[own] = model.means[k] + differs @ gain
            unsure[number] = covariance - covariance[:, seen] @ gain
        means.append(rows.by_user(weighted[:, k, None] * expected))
        if layout.whole:
            products = expected[:, first] * expected[:, second]
            for number, rest in unsure.items():
                products[patterns[number][0]] += rest[first, second]
            squares.append(rows.by_user(weighted[:, k, None] * products * layout.twice))
    parts = {"mean": np.stack(means, axis=1)}
    if layout.whole:
        parts["square"] = np.stack(squares, axis=1)
    return parts
