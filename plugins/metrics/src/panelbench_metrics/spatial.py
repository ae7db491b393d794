"""How far the map of all rows is from the real one."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from panelbench import USER_TABLES, Metric, Scale, Score
from panelbench_metrics.samples import floor_sample, remaining_train, tables_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pandas as pd

    from panelbench import Column, Dataset, Release

WORST = math.log(2.0)


@dataclass(frozen=True, kw_only=True)
class SpatialJsd(Metric):
    """Jensen-Shannon divergence of the rows' places on a grid, natural logarithm (path.md 3.7).

    The grid covers the public bounds of the two columns, or the real values where a bound is
    missing; what lies outside goes to the nearest cell. Rows without a place are left out; a
    release without any place scores ln 2, the worst. The reference is the test users. A schema
    without the two numeric columns, or test users without a place, get no score.

    Attributes:
        latitude: Name of the first column.
        longitude: Name of the second column.
        cells: Cells along each side of the grid.
    """

    name: ClassVar[str] = "spatial-jsd"
    kind: ClassVar[str] = USER_TABLES
    components: ClassVar[Mapping[str, Scale]] = {"jsd": Scale(upper=WORST)}

    latitude: str = "latitude"
    longitude: str = "longitude"
    cells: int = 40

    def __post_init__(self) -> None:
        if self.cells < 2:
            raise ValueError(f"cells must be at least 2, got {self.cells}.")

    def score(
        self, reference: Dataset, release: Release, *, rng: np.random.Generator
    ) -> Iterator[Score]:
        """Compare the release with the test users."""
        tables, synthetic = tables_of(reference, release)
        numeric = {column.name: column for column in tables.schema.numeric}
        if not {self.latitude, self.longitude} <= set(numeric):
            return
        train = remaining_train(tables, synthetic)
        edges = {
            name: _edges(numeric[name], (tables.test[name], train[name]), self.cells)
            for name in (self.latitude, self.longitude)
        }
        real = _shares(tables.test, edges)
        if real is None:
            return
        sample = floor_sample(tables, synthetic, rng)
        yield Score(
            component="jsd",
            value=_divergence(real, _shares(synthetic.frame, edges)),
            floor=None if sample is None else _divergence(real, _shares(sample, edges)),
        )


def _edges(column: Column, real: tuple[pd.Series, ...], cells: int) -> np.ndarray:
    """The inner edges of the cells along one side."""
    values = np.concatenate([side.dropna().to_numpy() for side in real])
    known = values if len(values) else np.zeros(1)
    low = column.lower if column.lower is not None else float(known.min())
    high = column.upper if column.upper is not None else float(known.max())
    return np.linspace(low, high, cells + 1)[1:-1]


def _shares(frame: pd.DataFrame, edges: dict[str, np.ndarray]) -> np.ndarray | None:
    """Share of the rows in each cell, None without any place."""
    places = frame[list(edges)].dropna()
    if not len(places):
        return None
    first, second = (
        np.searchsorted(edge, places[name].to_numpy(), side="right") for name, edge in edges.items()
    )
    cells = len(next(iter(edges.values()))) + 1
    shares: np.ndarray = np.bincount(first * cells + second, minlength=cells**2) / len(places)
    return shares


def _divergence(a: np.ndarray, b: np.ndarray | None) -> float:
    if b is None:
        return WORST
    middle = (a + b) / 2
    total = 0.0
    for side in (a, b):
        some = side > 0
        total += float(np.sum(side[some] * np.log(side[some] / middle[some])))
    return min(max(total / 2, 0.0), WORST)
