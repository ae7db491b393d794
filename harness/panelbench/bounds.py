"""Between which bounds a numeric column is cut into bins."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np
from scipy.stats import norm

if TYPE_CHECKING:
    from panelbench.flatten import Wide
    from panelbench.schema import Column

CELLS = 64
TAIL = 0.005
FALSE_ALARM = 0.01


class Clip(StrEnum):
    """Where the bounds of numeric columns come from."""

    BOUNDS = "bounds"
    """The public bounds of the schema."""
    DP = "dp"
    """Quantiles of a noisy histogram on a public grid between the public bounds."""
    PAPER = "paper"
    """Minimum and 99th percentile of the private data: not private."""


def public_bounds(column: Column) -> tuple[float, float]:
    """The schema's bounds of a numeric column, 0 and 1 where a categorical one has none."""
    if column.lower is None or column.upper is None:
        return 0.0, 1.0
    return column.lower, column.upper


def private_bounds(wide: Wide, column: Column) -> tuple[float, float]:
    """Minimum and 99th percentile of the values, as the paper clips. Not private."""
    values = wide.cells[column.name][wide.present]
    values = values[np.isfinite(values)]
    if not len(values):
        return public_bounds(column)
    low, high = float(values.min()), float(np.quantile(values, 0.99))
    return (low, high) if low < high else (low, low + 1.0)


def one_value_each(wide: Wide, column: Column, rng: np.random.Generator) -> np.ndarray:
    """Histogram on the public grid, with one value of each user that has any.

    One user adds at most 1 to one cell: L2 sensitivity 1 under add-or-remove, sqrt(2) under
    replace-one.
    """
    low, high = public_bounds(column)
    values = wide.cells[column.name]
    usable = wide.present & np.isfinite(values)
    order = np.where(usable, rng.random(values.shape), -1.0)
    chosen = np.take_along_axis(values, order.argmax(axis=1)[:, None], axis=1)[:, 0]
    chosen = np.clip(chosen[usable.any(axis=1)], low, high)
    return np.histogram(chosen, bins=CELLS, range=(low, high))[0].astype(np.float64)


def noisy_bounds(histogram: np.ndarray, stddev: float, column: Column) -> tuple[float, float]:
    """The central 99 % of a noisy histogram, one cell wider at each end. Post-processing only.

    Cells that noise alone would reach count as empty (one false alarm in 100 columns). The public
    bounds remain where nothing is left.
    """
    low, high = public_bounds(column)
    threshold = stddev * float(norm.isf(FALSE_ALARM / CELLS))
    solid = np.where(histogram > threshold, histogram, 0.0)
    if not solid.any():
        return low, high
    share = solid.cumsum() / solid.sum()
    first = int(np.searchsorted(share, TAIL, side="right"))
    last = int(np.searchsorted(share, 1 - TAIL, side="left"))
    edges = np.linspace(low, high, CELLS + 1)
    return float(edges[max(first - 1, 0)]), float(edges[min(last + 2, CELLS)])
