"""How far correlations, between columns and from one row to the next, are from the real ones."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from panelbench import USER_TABLES, Metric, Scale, Score
from panelbench_metrics.samples import check_rows, floor_sample, tables_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pandas as pd

    from panelbench import Dataset, Release

_FAR = 1e100  # values beyond are cut to it, so that no square overflows


@dataclass(frozen=True, kw_only=True)
class CorrelationError(Metric):
    """Mean absolute error of Pearson correlations of the numeric columns (path.md 3.8).

    The reference is the test users; pairs are pooled over all tables, those with a missing value
    dropped.

    - `cross`: correlation of two columns in the same row, the mean over pairs of columns.
    - `lag1`: correlation of a column with itself one row later in the same table, the mean over
      columns.

    A correlation that the test users leave undefined (a constant, fewer than two pairs) is left
    out. One that only the release leaves undefined counts as the most wrong value there is.

    Attributes:
        rows: Cut every table to its first so many rows and drop shorter ones; None for whole
            tables.
    """

    name: ClassVar[str] = "correlation-error"
    kind: ClassVar[str] = USER_TABLES
    components: ClassVar[Mapping[str, Scale]] = {
        "cross": Scale(upper=2.0),
        "lag1": Scale(upper=2.0),
    }

    rows: int | None = None

    def __post_init__(self) -> None:
        check_rows(self.rows)

    def score(
        self, reference: Dataset, release: Release, *, rng: np.random.Generator
    ) -> Iterator[Score]:
        """Compare the release with the test users."""
        tables, synthetic = tables_of(reference, release, rows=self.rows)
        names = [column.name for column in tables.schema.numeric]
        sample = floor_sample(tables, synthetic, rng)
        for component, correlations in (("cross", _cross), ("lag1", _lag1)):
            real = correlations(tables.test, names)
            detail = _errors(real, correlations(synthetic.frame, names))
            if not detail:
                continue
            floor = None
            if sample is not None:
                floors = _errors(real, correlations(sample, names))
                floor = float(np.mean(list(floors.values())))
            yield Score(
                component=component,
                value=float(np.mean(list(detail.values()))),
                detail=detail,
                floor=floor,
            )


def _errors(real: dict[str, float], other: dict[str, float]) -> dict[str, float]:
    return {
        name: 1.0 + abs(value) if np.isnan(other[name]) else abs(value - other[name])
        for name, value in real.items()
        if not np.isnan(value)
    }


def _cross(frame: pd.DataFrame, names: list[str]) -> dict[str, float]:
    values = {name: frame[name].to_numpy() for name in names}
    return {f"{a} x {b}": _pearson(values[a], values[b]) for a, b in combinations(names, 2)}


def _lag1(frame: pd.DataFrame, names: list[str]) -> dict[str, float]:
    users = frame["user"].to_numpy()
    same = users[1:] == users[:-1]
    values = {name: frame[name].to_numpy() for name in names}
    return {name: _pearson(v[:-1][same], v[1:][same]) for name, v in values.items()}


def _pearson(a: np.ndarray, b: np.ndarray) -> float:
    """Pearson correlation of the pairs without a missing value, NaN where undefined."""
    known = ~(np.isnan(a) | np.isnan(b))
    if known.sum() < 2:
        return float("nan")
    a, b = (np.clip(side[known], -_FAR, _FAR) for side in (a, b))
    if np.ptp(a) == 0.0 or np.ptp(b) == 0.0:
        return float("nan")
    a, b = (side / np.ptp(side) for side in (a, b))
    a, b = a - a.mean(), b - b.mean()
    return float(np.clip(np.sum(a * b) / np.sqrt(np.sum(a * a) * np.sum(b * b)), -1.0, 1.0))
