"""Tiny panels, made up on the spot: what plugins are examined and tested on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from panelbench.data import Dataset, SensorStreams, Split, UserTables
from panelbench.privacy import PrivacyUnit
from panelbench.schema import TIME, USER, Column, ColumnKind, Schema


def tiny_tables(users: int = 120, seed: int = 0) -> UserTables:
    """User tables with numeric, integer, nullable and categorical columns, 4 to 12 rows each.

    >>> tiny_tables().train[USER].nunique()
    60
    """
    rng = np.random.default_rng(seed)
    schema = Schema(
        columns=(
            Column(name="level", lower=-10.0, upper=10.0, unit="m"),
            Column(name="count", lower=0.0, upper=20.0, integer=True, nullable=True),
            Column(name="state", kind=ColumnKind.CATEGORICAL, categories=("calm", "busy", "full")),
        ),
        unit=PrivacyUnit.USER,
        min_rows=4,
        max_rows=12,
        nominal_users=users // 2,
        title="tiny tables",
    )
    tables = []
    for user in range(users):
        rows = int(rng.integers(4, 13))
        level = np.clip(np.cumsum(rng.normal(size=rows)) + rng.normal(0, 2), -10, 10)
        count = rng.poisson(5, rows).clip(0, 20).astype(float)
        count[rng.random(rows) < 0.1] = np.nan
        state = np.array(schema["state"].categories)[np.digitize(level, (-1.0, 1.0))]
        times = {USER: user, TIME: np.arange(rows, dtype=float)}
        tables.append(pd.DataFrame({**times, "level": level, "count": count, "state": state}))
    frame = pd.concat(tables, ignore_index=True)
    first = frame[USER] < users // 2
    return UserTables(schema=schema, train=frame[first], test=frame[~first])


def tiny_streams(episodes: int = 24, steps: int = 20, seed: int = 0) -> SensorStreams:
    """Episodes of up to thirty vehicles that come and go on a short road."""
    rng = np.random.default_rng(seed)
    sensors = 30
    start = rng.integers(-steps, steps, (episodes, sensors))
    stay = rng.integers(5, 2 * steps, (episodes, sensors))
    step = np.arange(steps)[None, :, None]
    present = (step >= start[:, None]) & (step < (start + stay)[:, None])
    speed = 20 - 0.5 * present.sum(axis=2, keepdims=True) + rng.normal(0, 1, present.shape)
    position = np.clip((step - start[:, None]) / stay[:, None] * 400, 0, 400) + 0.0 * speed
    observations = np.stack([position, np.clip(speed, 0, 45)], axis=-1)
    observations[~present] = np.nan
    return SensorStreams(
        schema=Schema(
            columns=(
                Column(name="position", unit="m", lower=0.0, upper=400.0),
                Column(name="speed", unit="m/s", lower=0.0, upper=45.0),
            ),
            unit=PrivacyUnit.SENSOR_TRAJECTORY,
            min_rows=steps,
            max_rows=steps,
            state=Column(name="density", unit="veh/km", lower=0.0),
            title="tiny streams",
        ),
        observations=observations,
        present=present,
        state=present.sum(axis=2) / 0.4,
        split=np.repeat(list(Split), [episodes // 2, episodes // 4, episodes - 3 * episodes // 4]),
        step_seconds=0.2,
    )


def tiny_visits(users: int = 120, seed: int = 0) -> UserTables:
    """Visits to two places at irregular times, in minutes from midnight, 4 to 12 a user.

    They follow a hidden Markov model of two states, which `extra["hmm"]` holds as the datasets of
    that name do: Gaussian latitude and longitude, and a categorical kind.

    >>> list(tiny_visits().extra)
    ['hmm']
    """
    rng = np.random.default_rng(seed)
    kinds = ("park", "shop", "home")
    truth: dict[str, Any] = {
        "numeric": ["latitude", "longitude"],
        "categorical": "kind",
        "levels": list(kinds),
        "weights": [1.0],
        "initial": [[0.5, 0.5]],
        "transition": [[[0.8, 0.2], [0.3, 0.7]]],
        "means": [[40.0, -74.0], [40.4, -74.2]],
        "covariances": [[[0.04, 0.01], [0.01, 0.02]], [[0.02, 0.0], [0.0, 0.04]]],
        "emission": [[0.1, 0.2, 0.7], [0.2, 0.6, 0.2]],
    }
    schema = Schema(
        columns=(
            Column(name="latitude", lower=39.5, upper=41.0, unit="degree"),
            Column(name="longitude", lower=-75.0, upper=-73.6, unit="degree"),
            Column(name="kind", kind=ColumnKind.CATEGORICAL, categories=kinds),
        ),
        unit=PrivacyUnit.USER,
        min_rows=4,
        max_rows=12,
        time_unit="minute",
        regular=False,
        nominal_users=users // 2,
        title="tiny visits",
    )
    means, covariances, emission = (
        np.array(truth[name]) for name in ("means", "covariances", "emission")
    )
    tables = []
    for user in range(users):
        rows = int(rng.integers(4, 13))
        states = [int(rng.integers(2))]
        while len(states) < rows:
            states.append(int(rng.choice(2, p=truth["transition"][0][states[-1]])))
        places = [rng.multivariate_normal(means[s], covariances[s]) for s in states]
        times = {USER: user, TIME: 480.0 + np.cumsum(rng.integers(1, 40, rows))}
        inside = np.clip(places, (39.5, -75.0), (41.0, -73.6))
        values = dict(zip(truth["numeric"], inside.T, strict=True))
        kind = [kinds[rng.choice(3, p=emission[s])] for s in states]
        tables.append(pd.DataFrame({**times, **values, "kind": kind}))
    frame = pd.concat(tables, ignore_index=True)
    first = frame[USER] < users // 2
    return UserTables(schema=schema, train=frame[first], test=frame[~first], extra={"hmm": truth})


def tiny(kind: str) -> Dataset:
    """The tiny panel of a kind of dataset."""
    return tiny_tables() if kind == UserTables.kind else tiny_streams()
