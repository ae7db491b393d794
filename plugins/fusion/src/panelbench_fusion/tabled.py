"""A learnt feature: a table over the values a sensor may report, interpolated in between."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np

from panelbench import NeighboringRelation

if TYPE_CHECKING:
    from panelbench_fusion.feature import Feature

NODES = 9
"""Nodes along each column."""
MOST_COLUMNS = 3
ROUNDED_UP = 1 + 2.0**-40
"""Weights of a report may add up to more than 1 by rounding."""


@dataclass(frozen=True, kw_only=True)
class Lattice:
    """Equally spaced nodes over the public bounds of the columns that have bounds.

    What counts as absent, and which values are clipped, is as in `Feature`.

    Attributes:
        base: Says which reports count and where the bounds are.
        columns: Indices of the columns, at most three.
    """

    base: Feature
    columns: tuple[int, ...]

    @classmethod
    def of(cls, base: Feature) -> Self:
        """The lattice over all bounded columns; value columns first where there are too many."""
        bounded = np.flatnonzero(np.isfinite(base.lower) & np.isfinite(base.upper)).tolist()
        rest = [column for column in bounded if column not in base.values]
        return cls(base=base, columns=tuple([*base.values, *rest][:MOST_COLUMNS]))

    @property
    def cells(self) -> int:
        """Number of nodes in all."""
        return int(NODES ** len(self.columns))

    def nodes(self) -> np.ndarray:
        """Places of the nodes, each column scaled to 0..1, shape (cells, columns)."""
        axis = np.linspace(0, 1, NODES)
        return np.array(list(itertools.product(axis, repeat=len(self.columns))))

    def weights(self, observations: np.ndarray, present: np.ndarray) -> np.ndarray:
        """How much all sensors together weigh on each node.

        A report has weights >= 0 on the nodes around it that add up to 1.

        Args:
            observations: Shape (..., sensors, columns).
            present: Shape (..., sensors).

        Returns:
            Shape (..., cells).
        """
        lead = present.shape[:-1]
        counted = self.base.counted(observations, present).reshape(-1, present.shape[-1])
        group, sensor = np.nonzero(counted)
        columns = list(self.columns)
        seen = observations.reshape(*counted.shape, -1)[group, sensor][:, columns]
        low, high = self.base.lower[columns], self.base.upper[columns]
        scaled = np.clip((seen - low) / (high - low), 0, 1) * (NODES - 1)
        first = np.minimum(scaled.astype(np.int64), NODES - 2)
        rest = scaled - first
        cell, share = group[None] * self.cells, np.ones((1, len(group)))
        for place in range(len(columns)):
            stride = NODES ** (len(columns) - 1 - place)
            near = cell + first[:, place] * stride
            cell = np.concatenate([near, near + stride])
            share = np.concatenate([share * (1 - rest[:, place]), share * rest[:, place]])
        total = np.bincount(cell.ravel(), share.ravel(), minlength=len(counted) * self.cells)
        return total.reshape(*lead, self.cells)


@dataclass(frozen=True, kw_only=True)
class TabledFeature:
    """f(y) = the table at y, interpolated linearly along each column; f(absent) = 0.

    f(y) is an average of rows of the table, so that no |f| exceeds the largest norm of a row, and
    no |f(y) - f(y')| the largest distance between two rows: norms and distances are convex, and
    largest at corners. So the sensitivity of a learnt feature is known exactly.

    Attributes:
        lattice: Where the nodes are.
        table: Shape (cells, size).
    """

    lattice: Lattice
    table: np.ndarray

    def __post_init__(self) -> None:
        if len(self.table) != self.lattice.cells or not np.isfinite(self.table).all():
            raise ValueError(
                f"A table needs {self.lattice.cells} finite rows, got {self.table.shape}."
            )

    def l2_sensitivity(self, relation: NeighboringRelation) -> float:
        """Largest L2 norm by which one sensor changes a step's sum; see the class."""
        rows = self.table
        if relation is NeighboringRelation.REPLACE_ONE:
            absent = np.zeros((1, rows.shape[1]))
            rows = np.concatenate([rows, absent])
            rows = (rows[:, None] - rows).reshape(-1, rows.shape[1])
        return float(np.linalg.norm(rows, axis=-1).max()) * ROUNDED_UP

    def sums(self, observations: np.ndarray, present: np.ndarray) -> np.ndarray:
        """S, the sum of f over sensors: a sum, never a mean. Shape (..., size)."""
        total: np.ndarray = self.lattice.weights(observations, present) @ self.table
        return total
