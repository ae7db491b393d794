"""How far the pooled transitions of each column are from the real ones."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from panelbench import USER_TABLES, Metric, Scale, Score
from panelbench_metrics.samples import check_rows, floor_sample, remaining_train, tables_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pandas as pd

    from panelbench import Dataset, Release

STATES = 4


@dataclass(frozen=True, kw_only=True)
class TransitionError(Metric):
    """Frobenius distance between transition matrices over quantile states (path.md 3.4).

    The states of a numeric column are the four quantile bins of the training users (those whose
    rows the release copies left out), the outer edges infinite, equal edges merged; a column with
    fewer than two bins is skipped. A value on an edge belongs to the bin above it. Missing values
    are dropped from each table, then the pairs of consecutive values are counted over all tables
    and each row is divided by its sum; a row without pairs stays zero. The error of a column is
    the Frobenius norm of the difference to the matrix of the test users, the score their mean
    (Rosenblatt et al. 2026, arXiv:2602.02766; there it compares with the training users).

    A release whose tables have one row each has the zero matrix. No column left: no score.

    Attributes:
        rows: Cut every table to its first so many rows and drop shorter ones; None for whole
            tables.
    """

    name: ClassVar[str] = "transition-error"
    kind: ClassVar[str] = USER_TABLES
    components: ClassVar[Mapping[str, Scale]] = {"error": Scale(upper=math.sqrt(2 * STATES))}

    rows: int | None = None

    def __post_init__(self) -> None:
        check_rows(self.rows)

    def score(
        self, reference: Dataset, release: Release, *, rng: np.random.Generator
    ) -> Iterator[Score]:
        """Compare the release with the test users."""
        tables, synthetic = tables_of(reference, release, rows=self.rows)
        train = remaining_train(tables, synthetic)
        edges = {c.name: _inner_edges(train[c.name].to_numpy()) for c in tables.schema.numeric}
        edges = {name: inner for name, inner in edges.items() if len(inner)}
        if not edges:
            return
        detail = _errors(edges, tables.test, synthetic.frame)
        sample = floor_sample(tables, synthetic, rng)
        floor = None
        if sample is not None:
            floor = float(np.mean(list(_errors(edges, tables.test, sample).values())))
        yield Score(
            component="error",
            value=float(np.mean(list(detail.values()))),
            detail=detail,
            floor=floor,
        )


def _inner_edges(values: np.ndarray) -> np.ndarray:
    """The finite edges between states; none where there is one state or nothing to split."""
    known: np.ndarray = values[~np.isnan(values)]
    if not len(known):
        return known
    edges = np.unique(np.quantile(known, np.linspace(0.0, 1.0, STATES + 1)))
    inner: np.ndarray = edges[1:-1]
    return inner


def _errors(
    edges: dict[str, np.ndarray], real: pd.DataFrame, other: pd.DataFrame
) -> dict[str, float]:
    return {
        name: float(
            np.linalg.norm(_transitions(real, name, inner) - _transitions(other, name, inner))
        )
        for name, inner in edges.items()
    }


def _transitions(frame: pd.DataFrame, name: str, inner: np.ndarray) -> np.ndarray:
    """Row-normalised counts of consecutive states, shape (states, states)."""
    known = frame[["user", name]].dropna()
    users = known["user"].to_numpy()
    states = np.searchsorted(inner, known[name].to_numpy(), side="right")
    same = users[1:] == users[:-1]
    size = len(inner) + 1
    pairs = states[:-1][same] * size + states[1:][same]
    counts = np.bincount(pairs, minlength=size * size).reshape(size, size)
    shares: np.ndarray = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    return shares
