"""The distance of each table to the nearest of many, under normalised dynamic time warping.

For two tables a and b of n and m rows the distance is the sum over attributes of
weight * cost / length: the smallest cost of a warping path, steps (1, 1), (1, 0), (0, 1), local
cost |a - b|, over the number of cells on that path. Where paths tie, the last step is the diagonal
one if that is as cheap, else the one in a if that is, else the one in b; so the length is defined.

Exact, yet most pairs are never computed. A path has at most n + m - 1 cells, its two ends among
them, and meets every row of a and every row of b in a cell each, where it costs at least the
distance to the nearest value of the other table. That bounds an attribute from below. To have the
bound for all pairs at once, values are put into cells of a grid: counts a cell of one table times
distances of the other table's values from each cell is a matrix product. A query then takes its
references roughly by rising bound, replaces the bound by the distance one attribute at a time, and
drops a reference as soon as the sum reaches the best so far. Four references run side by side, of
about one length, since the longest sets the pace. Bounds are lowered by more than their rounding
error, so that no comparison changes the result.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numba
import numpy as np

from panelbench_metrics.kernel import search

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Array = np.ndarray

CELLS = 64
_SINGLE = 1.0 - 1e-4  # lowers a sum in float32; its error is below 64 * 1.2e-7
_SMALL, _LARGE = 1e-30, 1e30  # between these float32 has its full precision
_STEPS = 16  # levels of bounds up to the median, in each of which references go by length
_LONGEST = 255  # rows above which length no longer orders
_BLOCK = 32  # queries bounded at a time


@dataclass(frozen=True, kw_only=True)
class Packed:
    """Tables of different lengths in one array.

    Attributes:
        values: Flat; table after table, in it attribute after attribute, in it row after row.
        starts: Where each table begins, shape (tables,).
        rows: Rows of each table, shape (tables,), at least 1.
        attributes: How many attributes every table has.
    """

    values: Array
    starts: Array
    rows: Array
    attributes: int

    @classmethod
    def of(cls, tables: Sequence[Array]) -> Packed:
        """Pack finite arrays of shape (rows, attributes).

        Raises:
            ValueError: Without tables, on an empty one, or on a value that is not finite.
        """
        if not tables or not all(len(table) for table in tables):
            raise ValueError("Packed needs at least one table, and at least one row in each.")
        values = np.concatenate([np.ravel(table, order="F") for table in tables])
        if not np.isfinite(values).all():
            raise ValueError("Packed needs finite values; fill the missing ones first.")
        rows = np.array([len(table) for table in tables], dtype=np.int64)
        attributes = tables[0].shape[1]
        starts = np.concatenate(([0], np.cumsum(rows[:-1] * attributes)))
        return cls(
            values=values.astype(np.float64), starts=starts, rows=rows, attributes=attributes
        )

    def series(self) -> Iterator[Array]:
        """Each attribute of all tables, one table after the other."""
        of_attribute = np.repeat(
            np.tile(np.arange(self.attributes), len(self.rows)),
            np.repeat(self.rows, self.attributes),
        )
        for attribute in range(self.attributes):
            yield self.values[of_attribute == attribute]


def nearest_distances(
    queries: Packed,
    references: Packed,
    weights: Array,
    *,
    skip: Array | None = None,
    threads: int = 1,
) -> Array:
    """Distance of each query to its nearest reference, shape (queries,).

    Args:
        queries: Tables to find neighbors for.
        references: Tables among which the neighbors are.
        weights: Factor of each attribute, finite and not negative, shape (attributes,). Of shape
            (kinds, attributes) for several distances, which one search finds in little more time.
        skip: For each query the index of a reference that does not count (itself), or -1.
        threads: At most so many threads, and at most `numba.get_num_threads()`. The result does
            not depend on it.

    Returns:
        The distances, shape (queries,) or (kinds, queries); infinite for a query whose only
        reference is skipped.
    """
    weights = np.asarray(weights, dtype=np.float64)
    factors = np.ascontiguousarray(np.atleast_2d(weights))
    count = len(queries.rows)
    skip = np.full(count, -1) if skip is None else np.asarray(skip, dtype=np.int64)
    edges = [
        np.quantile(np.concatenate(pair), np.linspace(0.0, 1.0, CELLS + 1), method="lower")
        for pair in zip(queries.series(), references.series(), strict=True)
    ]
    query_grid, reference_grid = _Grid.of(queries, edges), _Grid.of(references, edges)
    result = np.empty((len(factors), count))

    @np.errstate(over="ignore")  # absurd values are infinitely far
    def block(start: int) -> None:
        part = slice(start, start + _BLOCK)
        bounds = _bounds(query_grid, reference_grid, part)
        bound = np.tensordot(factors, bounds, axes=1)
        skipped = np.flatnonzero(skip[part] >= 0)
        bound[:, skipped, skip[part][skipped]] = np.inf
        result[:, part] = search(
            queries.values,
            queries.starts[part],
            queries.rows[part],
            references.values,
            references.starts,
            references.rows,
            factors,
            bounds,
            bound,
            _order(bound[-1], references.rows),
        )

    starts = range(0, count, _BLOCK)
    threads = min(threads, numba.get_num_threads())
    if threads > 1:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(block, starts))
    else:
        for start in starts:
            block(start)
    return result if weights.ndim == 2 else result[0]


def _order(bound: Array, rows: Array) -> Array:
    """References of each query roughly by rising bound, those of one level by their length."""
    low = bound.min(axis=1, keepdims=True)
    finite = np.minimum(bound, _LARGE)  # a skipped reference is infinitely far
    low = np.minimum(low, _LARGE)
    step = np.maximum(np.median(finite, axis=1, keepdims=True) - low, _SMALL) / _STEPS
    level = np.minimum((finite - low) / step, 4 * _STEPS).astype(np.uint16)
    length = np.minimum(rows, _LONGEST).astype(np.uint16)
    return np.argsort(level * np.uint16(_LONGEST + 1) + length, axis=1, kind="stable")


@dataclass(frozen=True, kw_only=True)
class _Grid:
    """What the bounds need to know of tables.

    Attributes:
        rows: Rows of each table.
        ends: First and last value, shape (2, attributes, tables).
        counts: Rows in each cell, the first and the last left out, shape (attributes, tables,
            cells).
        gaps: Distance of each cell to the nearest value of the table, shape as `counts`; 0 where
            float32 would round it coarsely.
    """

    rows: Array
    ends: Array
    counts: Array
    gaps: Array

    @classmethod
    def of(cls, packed: Packed, edges: list[Array]) -> _Grid:
        tables = len(packed.rows)
        first = np.cumsum(packed.rows) - packed.rows  # where each table's rows begin in a series
        last = first + packed.rows - 1
        table = np.repeat(np.arange(tables), packed.rows)
        inner = np.ones(len(table), dtype=bool)
        inner[first] = inner[last] = False
        ends, counts, gaps = [], [], []
        for series, edge in zip(packed.series(), edges, strict=True):
            ends.append((series[first], series[last]))
            cell = np.searchsorted(edge, series, side="right") - 1
            place = table * CELLS + np.clip(cell, 0, CELLS - 1)
            counts.append(np.bincount(place[inner], minlength=tables * CELLS))
            gaps.append(_gaps(series, place, tables, edge))
        shape = (packed.attributes, tables, CELLS)
        return cls(
            rows=packed.rows,
            ends=np.array(ends).transpose(1, 0, 2),
            counts=np.array(counts, dtype=np.float32).reshape(shape),
            gaps=np.array(gaps, dtype=np.float32),
        )


@np.errstate(over="ignore")  # absurd values are infinitely far
def _gaps(series: Array, place: Array, tables: int, edge: Array) -> Array:
    """Distance of each cell to the nearest value of each table, shape (tables, cells)."""
    lowest, highest = np.full(tables * CELLS, np.inf), np.full(tables * CELLS, -np.inf)
    np.minimum.at(lowest, place, series)
    np.maximum.at(highest, place, series)
    from_above = np.minimum.accumulate(lowest.reshape(tables, CELLS)[:, ::-1], axis=1)[:, ::-1]
    from_below = np.maximum.accumulate(highest.reshape(tables, CELLS), axis=1)
    above, below = from_above - edge[1:], edge[:-1] - from_below
    gaps = np.maximum(np.minimum(above, below), 0.0)
    return np.where(gaps < _SMALL, 0.0, np.minimum(gaps, _LARGE))


def _bounds(queries: _Grid, references: _Grid, part: slice) -> Array:
    """What each attribute's distance is at least, shape (attributes, queries, references)."""
    by_query_rows = np.matmul(queries.counts[:, part], references.gaps.transpose(0, 2, 1))
    by_reference_rows = np.matmul(queries.gaps[:, part], references.counts.transpose(0, 2, 1))
    inner = np.maximum(by_query_rows, by_reference_rows, out=by_query_rows)
    longest = queries.rows[part, None] + references.rows - 1
    first: Array
    last: Array
    first, last = np.abs(queries.ends[:, :, part, None] - references.ends[:, :, None, :])
    last[:, longest == 1] = 0.0  # a path of one cell has one end
    last += first
    last += inner * _SINGLE
    last /= longest
    return last
