"""How far the pooled values of each column are from the real ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from panelbench import USER_TABLES, Column, ColumnKind, Metric, Scale, Score
from panelbench_metrics.samples import (
    column_scale,
    finite,
    floor_sample,
    public_width,
    remaining_train,
    tables_of,
    wasserstein1,
)
from panelbench_metrics.shapes import values_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pandas as pd

    from panelbench import Dataset, Release


@dataclass(frozen=True, kw_only=True)
class MarginalW1(Metric):
    """Distance of each column's pooled values from those of the test users (path.md 3.1).

    Values are pooled over all rows of all tables, missing ones dropped.

    - `raw`: the mean over numeric columns of the Wasserstein-1 distance in the columns' own units
      (Rosenblatt et al. 2026, arXiv:2602.02766; there it compares with the training users).
    - `scaled`: the same with each column divided by the standard deviation of the training users'
      values (users whose rows the release copies left out); by its public width where that is 0
      or unknown, and by 1 where there is no width either.
    - `tv`: the mean over categorical columns of the total variation distance, a missing value
      being one more category.
    - `missing`: the mean over all columns of the difference between the shares of missing values,
      which the first two cannot see.

    A numeric column without any value on exactly one side scores the width of its public bounds,
    which no release within the bounds exceeds; where it has no bounds, the range of its real
    values, and 1 where that is 0. Without any value on both sides it scores 0. A component without
    columns is left out.

    Panels: the share of values in bins, real and synthetic, of the first eight numeric columns.
    """

    name: ClassVar[str] = "marginal-w1"
    kind: ClassVar[str] = USER_TABLES
    components: ClassVar[Mapping[str, Scale]] = {
        "raw": Scale(),
        "scaled": Scale(),
        "tv": Scale(upper=1.0),
        "missing": Scale(upper=1.0),
    }

    def score(
        self, reference: Dataset, release: Release, *, rng: np.random.Generator
    ) -> Iterator[Score]:
        """Compare the release with the test users."""
        tables, synthetic = tables_of(reference, release)
        train = remaining_train(tables, synthetic)
        columns = tables.schema.columns
        details = _distances(columns, tables.test, synthetic.frame, train)
        sample = floor_sample(tables, synthetic, rng)
        pictures = values_of(tables.schema.numeric, tables.test, synthetic.frame)
        floors = {} if sample is None else _distances(columns, tables.test, sample, train)
        for component, detail in details.items():
            if detail:
                yield Score(
                    component=component,
                    value=_mean(detail),
                    detail=detail,
                    floor=_mean(floors[component]) if floors else None,
                    panels=pictures if component == "raw" else {},
                )


def _mean(detail: dict[str, float]) -> float:
    with np.errstate(over="ignore"):
        return finite(np.mean(list(detail.values())))


def _distances(
    columns: tuple[Column, ...], real: pd.DataFrame, other: pd.DataFrame, train: pd.DataFrame
) -> dict[str, dict[str, float]]:
    """Component -> column -> distance between `real` and `other`; scales come from `train`."""
    result: dict[str, dict[str, float]] = {"raw": {}, "scaled": {}, "tv": {}, "missing": {}}
    for column in columns:
        a, b = real[column.name], other[column.name]
        result["missing"][column.name] = abs(float(a.isna().mean() - b.isna().mean()))
        if column.kind is ColumnKind.CATEGORICAL:
            result["tv"][column.name] = _total_variation(a, b, len(column.categories))
            continue
        known = train[column.name].dropna().to_numpy()
        present = a.dropna().to_numpy(), b.dropna().to_numpy()
        distance = _numeric_distance(column, *present, known)
        result["raw"][column.name] = distance
        result["scaled"][column.name] = finite(distance / column_scale(column, known))
    return result


def _numeric_distance(column: Column, a: np.ndarray, b: np.ndarray, known: np.ndarray) -> float:
    if len(a) and len(b):
        return wasserstein1(a, b)
    if not len(a) and not len(b):
        return 0.0
    width = public_width(column)
    if width is None:
        values = np.concatenate((a, known))
        width = float(np.ptp(values)) if len(values) else 0.0
    return width or 1.0


def _total_variation(a: pd.Series, b: pd.Series, categories: int) -> float:
    shares = [
        np.bincount(side.cat.codes.to_numpy() + 1, minlength=categories + 1) / len(side)
        for side in (a, b)
    ]
    return min(float(np.abs(shares[0] - shares[1]).sum()) / 2, 1.0)
