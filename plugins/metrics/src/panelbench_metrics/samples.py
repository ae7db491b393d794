"""Which real users a release is compared with, and the real sample behind each floor."""

from __future__ import annotations

import dataclasses
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


def check_rows(rows: int | None) -> None:
    """Check the field that says to how many rows tables are cut.

    Raises:
        ValueError: Where it is neither None nor at least 1.
    """
    if rows is not None and rows < 1:
        raise ValueError(f"rows must be at least 1, or left out for whole tables, got {rows}.")


def tables_of(
    reference: Dataset, release: Release, *, rows: int | None = None
) -> tuple[UserTables, SyntheticTables]:
    """The arguments of `Metric.score`, checked to be user tables, cut where asked.

    Args:
        reference: The dataset.
        release: The release.
        rows: Keep the first so many rows of every table, real or synthetic, and drop shorter
            tables: what mechanisms of fixed-length tables are given. None keeps all.

    Raises:
        DataError: Where they are of another kind, the dataset has no test users, or no table of
            the test users or of the release is that long.
    """
    if not isinstance(reference, UserTables) or not isinstance(release, SyntheticTables):
        raise DataError(
            f"This metric compares user tables, got {reference.kind} and {release.kind}."
        )
    if not len(reference.test):
        raise DataError("The dataset has no test users, which this metric compares with.")
    if rows is None:
        return reference, release
    schema = dataclasses.replace(
        reference.schema, min_rows=min(rows, reference.schema.min_rows), max_rows=rows
    )
    cut = {
        "train": _first_rows(reference.train, rows),
        "test": _first_rows(reference.test, rows),
        "release": _first_rows(release.frame, rows),
    }
    for name in ("test", "release"):
        if not len(cut[name]):
            raise DataError(f"No table of the {name} has {rows} rows; give a smaller `rows`.")
    return (
        dataclasses.replace(reference, schema=schema, train=cut["train"], test=cut["test"]),
        dataclasses.replace(release, schema=schema, frame=cut["release"]),
    )


def _first_rows(frame: pd.DataFrame, rows: int) -> pd.DataFrame:
    tables = frame.groupby("user")["user"]
    return frame[(tables.transform("size") >= rows) & (tables.cumcount() < rows)]


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


def some_users(frame: pd.DataFrame, most: int, seed: int) -> np.ndarray:
    """At most so many users, sorted; frames with as many users give the same places."""
    users = frame["user"].unique()
    return users[np.sort(np.random.default_rng(seed).permutation(len(users))[:most])]


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
