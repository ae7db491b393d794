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
references by rising bound, replaces the bound by the distance one attribute at a time, and drops a
reference as soon as the sum reaches the best so far. Four references run side by side. Bounds are
lowered by more than their rounding error, so that no comparison changes the result.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numba
import numpy as np

from panelbench_metrics.kernel import search, tabulate

if TYPE_CHECKING:
    from collections.abc import Sequence

Array = np.ndarray

CELLS = 64
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

    def ends(self) -> Array:
        """First and last value of each attribute, shape (2, attributes, tables)."""
        first = self.starts + np.arange(self.attributes)[:, None] * self.rows
        return np.stack((self.values[first], self.values[first + self.rows - 1]))


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
        weights: Factor of each attribute, finite and not negative, shape (attributes,).
        skip: For each query the index of a reference that does not count (itself), or -1.
        threads: At most so many threads, and at most `numba.get_num_threads()`. The result does
            not depend on it.

    Returns:
        The distances; infinite for a query whose only reference is skipped.
    """
    weights = np.asarray(weights, dtype=np.float64)
    count = len(queries.rows)
    skip = np.full(count, -1) if skip is None else np.asarray(skip, dtype=np.int64)
    edges = _edges(queries, references)
    counts_q, gaps_q = tabulate(queries.values, queries.starts, queries.rows, edges)
    counts_r, gaps_r = tabulate(references.values, references.starts, references.rows, edges)
    ends = references.ends()
    result = np.empty(count)

    def block(start: int) -> None:
        part = slice(start, start + _BLOCK)
        by_query_rows = np.matmul(counts_q[:, part], gaps_r.transpose(0, 2, 1))
        by_reference_rows = np.matmul(gaps_q[:, part], counts_r.transpose(0, 2, 1))
        interior = np.maximum(by_query_rows, by_reference_rows, out=by_query_rows)
        result[part] = search(
            queries.values,
            queries.starts[part],
            queries.rows[part],
            references.values,
            references.starts,
            references.rows,
            ends,
            interior,
            weights,
            skip[part],
        )

    starts = range(0, count, _BLOCK)
    threads = min(threads, numba.get_num_threads())
    if threads > 1:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(block, starts))
    else:
        for start in starts:
            block(start)
    return result


def _edges(queries: Packed, references: Packed) -> Array:
    """Borders of the grid's cells, quantiles of all values, shape (attributes, CELLS + 1)."""
    at = np.linspace(0.0, 1.0, CELLS + 1)
    edges = []
    for attribute in range(queries.attributes):
        pooled = []
        for packed in (queries, references):
            of_attribute = np.repeat(
                np.tile(np.arange(packed.attributes), len(packed.rows)),
                np.repeat(packed.rows, packed.attributes),
            )
            pooled.append(packed.values[of_attribute == attribute])
        edges.append(np.quantile(np.concatenate(pooled), at, method="lower"))
    return np.array(edges)
