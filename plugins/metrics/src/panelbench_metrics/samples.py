"""Which real users a release is compared with, and the real sample behind each floor."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from panelbench import DataError, SyntheticTables, UserTables

if TYPE_CHECKING:
    import pandas as pd

    from panelbench import Column, Dataset, Release

LARGEST = sys.float_info.max


def finite(value: float | np.floating[Any]) -> float:
    """`value`, or the largest float where the sum over absurd values overflowed."""
    return min(float(value), LARGEST)


def tables_of(reference: Dataset, release: Release) -> tuple[UserTables, SyntheticTables]:
    """The arguments of `Metric.score`, checked to be user tables.

    Raises:
        DataError: Where they are of another kind, or the dataset has no test users.
    """
    if not isinstance(reference, UserTables) or not isinstance(release, SyntheticTables):
        raise DataError(
            f"This metric compares user tables, got {reference.kind} and {release.kind}."
        )
    if not len(reference.test):
        raise DataError("The dataset has no test users, which this metric compares with.")
    return reference, release


def remaining_train(reference: UserTables, release: SyntheticTables) -> pd.DataFrame:
    """The rows of the training users that the release does not copy."""
    copied = reference.train["user"].isin(release.copied_users)
    return reference.train[~copied]


def floor_sample(
    reference: UserTables, release: SyntheticTables, rng: np.random.Generator
) -> pd.DataFrame | None:
    """As many real training tables as the release has, or as many as remain; None without any.

    Scored in the release's place they show what a perfect release of that size would get.
    """
    train = remaining_train(reference, release)
    users = train["user"].unique()
    if not len(users):
        return None
    size = min(len(users), release.frame["user"].nunique())
    chosen = rng.choice(users, size=size, replace=False)
    return train[train["user"].isin(chosen)]


def public_width(column: Column) -> float | None:
    """The width of a numeric column's bounds, None without both."""
    if column.lower is None or column.upper is None:
        return None
    return column.upper - column.lower


def column_scale(column: Column, known: np.ndarray) -> float:
    """What a column is divided by where scaled: the standard deviation of real values.

    Where that is 0 or there are none: the public width, and 1 where there is none either.

    Args:
        column: A numeric column.
        known: The real values of it, shape (n,).
    """
    deviation = float(np.std(known)) if len(known) else 0.0
    return deviation or public_width(column) or 1.0


def wasserstein1(a: np.ndarray, b: np.ndarray) -> float:
    """Wasserstein-1 distance between two samples: the area between their distribution functions.

    Args:
        a: Shape (n,), not empty, finite.
        b: Shape (m,), not empty, finite.

    >>> wasserstein1(np.array([0.0, 2.0]), np.array([1.0, 3.0]))
    1.0
    """
    a, b = np.sort(a), np.sort(b)
    points = np.sort(np.concatenate((a, b)))
    below_a = np.searchsorted(a, points[:-1], side="right") / len(a)
    below_b = np.searchsorted(b, points[:-1], side="right") / len(b)
    with np.errstate(over="ignore"):
        return finite(np.sum(np.abs(below_a - below_b) * np.diff(points)))
