"""How likely synthetic tables are under the true model, beside held-out real ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from panelbench import USER_TABLES, Metric, Scale, Score
from panelbench_metrics.samples import check_rows, floor_sample, tables_of, wasserstein1

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pandas as pd

    from panelbench import Dataset, Release

TRUTH = "hmm"
_FAR = 1e100  # distances from a mean beyond are cut to it, so that no square overflows
_LEAST = -1e300  # log-likelihoods below, -inf among them, are cut to it


@dataclass(frozen=True, kw_only=True)
class HmmLikelihood(Metric):
    """Difference between the log-likelihoods of real and synthetic tables (path.md 3.5).

    Each table is scored under the true hidden Markov model, which the simulator keeps in
    `extra["hmm"]` (a mixture of user types, Gaussian columns with full covariances, one categorical
    column), by the forward recursion in log space. Missing values are marginalised. The reference
    is the test users; a dataset without such a model gets no score (Rosenblatt et al. 2026,
    arXiv:2602.02766).

    - `gap`: absolute difference of the mean log-likelihoods of a table.
    - `per-row`: the same for the log-likelihood divided by the number of rows, which tables of
      other lengths do not change.
    - `w1`: Wasserstein-1 distance between the log-likelihoods of the tables. Unlike `gap` it is
      not met by tables that are right only on average.

    Attributes:
        rows: Cut every table to its first so many rows and drop shorter ones, which is what
            mechanisms of fixed-length tables need; None for whole tables.
    """

    name: ClassVar[str] = "hmm-likelihood"
    kind: ClassVar[str] = USER_TABLES
    components: ClassVar[Mapping[str, Scale]] = {
        "gap": Scale(),
        "per-row": Scale(),
        "w1": Scale(),
    }

    rows: int | None = None

    def __post_init__(self) -> None:
        check_rows(self.rows)

    def score(
        self, reference: Dataset, release: Release, *, rng: np.random.Generator
    ) -> Iterator[Score]:
        """Compare the release with the test users."""
        tables, synthetic = tables_of(reference, release, rows=self.rows)
        truth = tables.extra.get(TRUTH)
        if truth is None:
            return
        real = _scored(tables.test, truth)
        other = _scored(synthetic.frame, truth)
        sample = floor_sample(tables, synthetic, rng)
        values = _gaps(real, other)
        floors = None if sample is None else _gaps(real, _scored(sample, truth))
        detail = {"mean of test tables": real[0].mean(), "mean of synthetic": other[0].mean()}
        for component, value in values.items():
            yield Score(
                component=component,
                value=value,
                unit="nats a row" if component == "per-row" else "nats",
                detail=detail if component == "gap" else {},
                floor=None if floors is None else floors[component],
            )


def _gaps(
    real: tuple[np.ndarray, np.ndarray], other: tuple[np.ndarray, np.ndarray]
) -> dict[str, float]:
    (a, a_rows), (b, b_rows) = real, other
    return {
        "gap": abs(float(a.mean() - b.mean())),
        "per-row": abs(float((a / a_rows).mean() - (b / b_rows).mean())),
        "w1": wasserstein1(a, b),
    }


def _scored(frame: pd.DataFrame, truth: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Log-likelihood and number of rows of each table."""
    rows = frame.groupby("user").size().to_numpy()
    return np.maximum(log_likelihoods(frame, truth), _LEAST), rows


def log_likelihoods(frame: pd.DataFrame, truth: dict[str, Any]) -> np.ndarray:
    """Log-likelihood of each table, shape (tables,), in nats.

    Args:
        frame: Canonical long frame.
        truth: Names of the numeric columns and of the categorical one with its levels; weights
            (types,), initial (types, states), transition (types, states, states), means (states,
            columns), covariances (states, columns, columns), emission (states, levels).
    """
    emission = _log_emissions(frame, truth)  # log-densities from here on
    rows = frame.groupby("user").size().to_numpy()
    starts = np.cumsum(rows) - rows
    with np.errstate(divide="ignore"):
        weights, initial, transition = (
            np.log(np.array(truth[name])) for name in ("weights", "initial", "transition")
        )
    order = np.argsort(-rows, kind="stable")  # longest first, so that those left are a prefix
    starts, rows = starts[order], rows[order]
    forward = initial[:, None, :] + emission[starts]
    for step in range(1, int(rows[0])):
        left = int(np.searchsorted(-rows, -step))  # tables with more than `step` rows
        before = forward[:, :left, :, None] + transition[:, None]
        forward[:, :left] = _log_sum(before, axis=2) + emission[starts[:left] + step]
    result = np.empty(len(rows))
    result[order] = _log_sum(_log_sum(forward, axis=2) + weights[:, None], axis=0)
    return result


def _log_sum(values: np.ndarray, *, axis: int) -> np.ndarray:
    """Logarithm of the sum of exponentials, -inf where all are."""
    top = np.maximum(values.max(axis=axis, keepdims=True), _LEAST)
    with np.errstate(divide="ignore"):
        total = np.log(np.exp(values - top).sum(axis=axis))
    result: np.ndarray = total + np.squeeze(top, axis=axis)
    return result


def _log_emissions(frame: pd.DataFrame, truth: dict[str, Any]) -> np.ndarray:
    """Log-density of each row in each state, missing values marginalised, shape (rows, states)."""
    values = frame[truth["numeric"]].to_numpy(dtype=np.float64)
    means, covariances = np.array(truth["means"]), np.array(truth["covariances"])
    result = np.zeros((len(frame), len(means)))
    known = ~np.isnan(values)
    patterns, member = np.unique(known, axis=0, return_inverse=True)
    for index, pattern in enumerate(patterns):
        chosen = np.flatnonzero(member == index)
        for state, mean in enumerate(means):
            covariance = covariances[state][np.ix_(pattern, pattern)]
            root = np.linalg.cholesky(covariance)
            away = np.clip(values[chosen][:, pattern] - mean[pattern], -_FAR, _FAR)
            whitened = np.linalg.solve(root, away.T)
            constant = pattern.sum() * np.log(2 * np.pi) / 2 + np.log(np.diagonal(root)).sum()
            result[chosen, state] = -constant - (whitened**2).sum(axis=0) / 2
    categories = frame[truth["categorical"]].cat
    place = np.array([truth["levels"].index(c) for c in categories.categories] + [-1])
    levels = place[categories.codes.to_numpy()]
    with np.errstate(divide="ignore"):
        emission = np.log(np.array(truth["emission"]))
    result += np.where(levels[:, None] >= 0, emission.T[levels], 0.0)
    return result
