"""How much of a release is real training data, value for value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from panelbench import USER_TABLES, ColumnKind, Metric, Scale, Score
from panelbench_metrics.samples import floor_sample, tables_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pandas as pd

    from panelbench import Column, Dataset, Release


@dataclass(frozen=True, kw_only=True)
class ExactCopies(Metric):
    """Share of the release that equals real training data, beyond what held-out data does.

    Values are compared column by column, a missing value being one of its own, without the times.
    From the share of the release the same share of the test users is subtracted (coarse values
    repeat by chance), and nothing below 0 is reported. Unlike in other metrics, the training users
    that a release declares to have copied count: a subsample of real users scores 1 less chance.

    - `tables`: tables that are equal to a training user's, all rows in order.
    - `rows`: rows that are equal to any row of a training user.
    """

    name: ClassVar[str] = "exact-copies"
    kind: ClassVar[str] = USER_TABLES
    components: ClassVar[Mapping[str, Scale]] = {
        "tables": Scale(upper=1.0),
        "rows": Scale(upper=1.0),
    }

    def score(
        self, reference: Dataset, release: Release, *, rng: np.random.Generator
    ) -> Iterator[Score]:
        """Compare the release, and the test users, with the training users."""
        tables, synthetic = tables_of(reference, release)
        columns = tables.schema.columns
        shares = _shares(columns, tables.train, (synthetic.frame, tables.test))
        sample = floor_sample(tables, synthetic, rng)
        floors = None
        if sample is not None:
            rest = tables.train[~tables.train["user"].isin(sample["user"].unique())]
            floors = _shares(columns, rest, (sample, tables.test))
        for component, (copied, chance) in shares.items():
            yield Score(
                component=component,
                value=_excess([copied, chance]),
                detail={"release": copied, "test users": chance},
                floor=None if floors is None else _excess(floors[component]),
            )


def _excess(shares: list[float]) -> float:
    return max(shares[0] - shares[1], 0.0)


def _shares(
    columns: tuple[Column, ...], train: pd.DataFrame, others: tuple[pd.DataFrame, ...]
) -> dict[str, list[float]]:
    """For tables and for rows, the share of each of `others` that is in `train`."""
    frames = (train, *others)
    values = np.concatenate([_values(columns, frame) for frame in frames])
    keys = values.view(np.dtype((np.void, values.dtype.itemsize * values.shape[1]))).ravel()
    _, codes = np.unique(keys, return_inverse=True)
    known, *found = np.split(codes, np.cumsum([len(frame) for frame in frames])[:-1])
    tables = set(_tables(train, known))
    result: dict[str, list[float]] = {"tables": [], "rows": []}
    for frame, rows in zip(others, found, strict=True):
        result["tables"].append(float(np.mean([t in tables for t in _tables(frame, rows)])))
        result["rows"].append(float(np.isin(rows, known).mean()))
    return result


def _values(columns: tuple[Column, ...], frame: pd.DataFrame) -> np.ndarray:
    """All values as numbers with one bit pattern for each, shape (rows, columns)."""
    values = np.empty((len(frame), len(columns)))
    for index, column in enumerate(columns):
        given = frame[column.name]
        categorical = column.kind is ColumnKind.CATEGORICAL
        numbers = given.cat.codes.to_numpy() if categorical else given.to_numpy()
        values[:, index] = np.where(np.isnan(numbers), np.nan, numbers + 0.0)
    return values


def _tables(frame: pd.DataFrame, codes: np.ndarray) -> list[bytes]:
    starts = np.flatnonzero(np.diff(frame["user"].to_numpy())) + 1
    return [part.tobytes() for part in np.split(codes, starts)] if len(codes) else []
