"""How far the transitions among the most frequent categories are from the real ones."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from panelbench import USER_TABLES, ColumnKind, DataError, Metric, Scale, Score
from panelbench_metrics.samples import check_rows, floor_sample, remaining_train, tables_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pandas as pd

    from panelbench import Column, Dataset, Release

MOST = 1000


@dataclass(frozen=True, kw_only=True)
class ComplaintTransitions(Metric):
    """Frobenius distance between transition matrices over the most frequent types (path.md 3.7).

    The types of a categorical column are its `top` most frequent values among the training users
    that the release does not copy. Pairs of adjacent rows with both values among them are counted
    over all tables, and each row of the matrix is divided by its sum; a row without pairs stays
    zero. The error is the Frobenius norm of the difference to the matrix of the test users, the
    score its mean over columns (Rosenblatt et al. 2026, arXiv:2602.02766, for complaint types).

    A schema without categorical columns has no score.

    Attributes:
        column: The categorical column to use; None for the mean over all.
        top: How many types to keep.
        rows: Cut every table to its first so many rows and drop shorter ones; None for whole
            tables.
    """

    name: ClassVar[str] = "complaint-transitions"
    kind: ClassVar[str] = USER_TABLES
    components: ClassVar[Mapping[str, Scale]] = {"error": Scale(upper=math.sqrt(2 * MOST))}

    column: str | None = None
    top: int = 20
    rows: int | None = None

    def __post_init__(self) -> None:
        check_rows(self.rows)
        if not 2 <= self.top <= MOST:
            raise ValueError(f"top must lie between 2 and {MOST}, got {self.top}.")

    def score(
        self, reference: Dataset, release: Release, *, rng: np.random.Generator
    ) -> Iterator[Score]:
        """Compare the release with the test users.

        Raises:
            DataError: Where `column` names no categorical column.
        """
        tables, synthetic = tables_of(reference, release, rows=self.rows)
        train = remaining_train(tables, synthetic)
        places = {
            column.name: _places(column, train, self.top)
            for column in self._columns(tables.schema.columns)
        }
        places = {name: place for name, place in places.items() if place.max() >= 0}
        if not places:
            return
        sample = floor_sample(tables, synthetic, rng)
        detail = _errors(places, tables.test, synthetic.frame)
        floors = None if sample is None else _errors(places, tables.test, sample)
        yield Score(
            component="error",
            value=float(np.mean(list(detail.values()))),
            detail=detail,
            floor=None if floors is None else float(np.mean(list(floors.values()))),
        )

    def _columns(self, columns: tuple[Column, ...]) -> list[Column]:
        categorical = [c for c in columns if c.kind is ColumnKind.CATEGORICAL]
        if self.column is None:
            return categorical
        chosen = [column for column in categorical if column.name == self.column]
        if not chosen:
            raise DataError(
                f"complaint-transitions needs a categorical column, and '{self.column}' is none; "
                f"there are {[column.name for column in categorical]}."
            )
        return chosen


def _places(column: Column, train: pd.DataFrame, top: int) -> np.ndarray:
    """For each category (and, last, a missing value) its rank among the types, or -1."""
    codes = train[column.name].cat.codes.to_numpy()
    counts = np.bincount(codes[codes >= 0], minlength=len(column.categories))
    types = np.argsort(-counts, kind="stable")[:top]
    types = types[counts[types] > 0]
    places = np.full(len(column.categories) + 1, -1)
    places[types] = np.arange(len(types))
    return places


def _errors(
    places: dict[str, np.ndarray], real: pd.DataFrame, other: pd.DataFrame
) -> dict[str, float]:
    return {
        name: float(np.linalg.norm(_matrix(real, name, place) - _matrix(other, name, place)))
        for name, place in places.items()
    }


def _matrix(frame: pd.DataFrame, name: str, place: np.ndarray) -> np.ndarray:
    """Row-normalised counts of adjacent types, shape (types, types)."""
    users = frame["user"].to_numpy()
    states = place[frame[name].cat.codes.to_numpy()]  # code -1, missing, takes the last place
    kept = (users[1:] == users[:-1]) & (states[1:] >= 0) & (states[:-1] >= 0)
    size = int(place.max()) + 1
    pairs = states[:-1][kept] * size + states[1:][kept]
    counts = np.bincount(pairs, minlength=size * size).reshape(size, size)
    shares: np.ndarray = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    return shares
