"""Small user tables to score."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from panelbench import (
    Column,
    ColumnKind,
    Established,
    Guarantee,
    NeighboringRelation,
    PrivacyUnit,
    Schema,
    SyntheticTables,
    UserTables,
)

COLUMNS = (
    Column(name="heart", lower=0.0, upper=300.0, nullable=True),
    Column(name="pressure", nullable=True),
    Column(name="ward", kind=ColumnKind.CATEGORICAL, categories=("a", "b", "c"), nullable=True),
)


def make_schema(columns=COLUMNS):
    return Schema(columns=columns, unit=PrivacyUnit.USER, min_rows=1, max_rows=50)


def make_frame(rng, users, first=0, missing=0.1):
    """Autoregressive tables of 1 to 12 rows, a level for each user."""
    frames = []
    for user in range(first, first + users):
        rows = int(rng.integers(1, 13))
        steps = rng.normal(0.0, 5.0, (rows, 2)).cumsum(axis=0)
        values = np.array([80.0, 120.0]) + rng.normal(0.0, 8.0, 2) + steps
        values[rng.random(values.shape) < missing] = np.nan
        wards = rng.choice(["a", "b", "c"], size=rows, p=[0.6, 0.3, 0.1]).astype(object)
        wards[rng.random(rows) < missing] = None
        frames.append(
            pd.DataFrame(
                {
                    "user": user,
                    "time": np.arange(rows, dtype=float),
                    "heart": values[:, 0],
                    "pressure": values[:, 1],
                    "ward": wards,
                }
            )
        )
    return pd.concat(frames, ignore_index=True)


@pytest.fixture(scope="session")
def dataset():
    rng = np.random.default_rng(7)
    return UserTables(
        schema=make_schema(),
        train=make_frame(rng, 120),
        test=make_frame(rng, 60, first=1000),
    )


@pytest.fixture(scope="session")
def as_release():
    """Make a release of a frame, users as they are."""

    def build(frame, schema=None, copied=()):
        return SyntheticTables(
            schema=schema or make_schema(),
            frame=frame,
            guarantee=Guarantee(
                established=Established.NONE,
                unit=PrivacyUnit.USER,
                relation=NeighboringRelation.ADD_OR_REMOVE_ONE,
            ),
            copied_users=np.array(copied, dtype=np.int64),
        )

    return build


@pytest.fixture(scope="session")
def tables():
    """Make a dataset of two frames over the numeric columns given, all without bounds."""

    def build(train, test, names=("x",)):
        columns = tuple(Column(name=name, nullable=True) for name in names)
        return UserTables(schema=make_schema(columns), train=train, test=test)

    return build


@pytest.fixture(scope="session")
def one_column():
    """Make a frame with the column x from one list of values a user."""

    def build(*series, first=0):
        return pd.DataFrame(
            {
                "user": np.repeat(np.arange(first, first + len(series)), [len(s) for s in series]),
                "time": np.concatenate([np.arange(len(s), dtype=float) for s in series]),
                "x": np.concatenate([np.asarray(s, dtype=float) for s in series]),
            }
        )

    return build


@pytest.fixture(scope="session")
def scores_of():
    """Score by component."""

    def score(metric, dataset, release, seed=0):
        given = metric.score(dataset, release, rng=np.random.default_rng(seed))
        return {score.component: score for score in given}

    return score
