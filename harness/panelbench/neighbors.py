"""Neighboring datasets that are as hard as can be to tell apart privately, and canaries.

The person who is in one of them and not in the other has what nobody else has: the highest values,
the rarest category, the longest table; a sensor at its bound at every step. Under replace-one the
person is replaced by one like all others (for sensors, by one that is absent).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from panelbench.data import SensorStreams, Split, UserTables
from panelbench.privacy import NeighboringRelation, PrivacyUnit
from panelbench.schema import TIME, USER, Column, ColumnKind, Schema

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

USERS = 100
"""Users beside the one in question."""
ROWS = 2
OTHERS = 8
"""Users in the category of each canary."""
STEPS = 8
SENSORS = 30
KNOWN = 60
"""Windows to fit on."""

_TABLES = Schema(
    columns=(
        Column(name="level", lower=-1.0, upper=1.0),
        Column(name="kind", kind=ColumnKind.CATEGORICAL, categories=("usual", "rare")),
    ),
    unit=PrivacyUnit.USER,
    min_rows=1,
    max_rows=ROWS,
    nominal_users=USERS,
    title="audit: user tables",
)


def table_pair(relation: NeighboringRelation) -> tuple[UserTables, UserTables]:
    """Two datasets that differ in one user: with the person in question, and without.

    >>> within, without = table_pair(NeighboringRelation.ADD_OR_REMOVE_ONE)
    >>> len(within.train) - len(without.train)
    2
    """
    usual = [
        _table(user, [-1.0, 0.75][user % 2], "usual", 1 + user // 2 % 2) for user in range(USERS)
    ]
    person = _table(USERS, 1.0, "rare", ROWS)
    instead = []
    if relation is NeighboringRelation.REPLACE_ONE:
        instead = [_table(USERS, -1.0, "usual", 1)]
    within, without = (
        UserTables(schema=_TABLES, train=pd.concat(users), test=person.iloc[:0])
        for users in ([*usual, person], [*usual, *instead])
    )
    return within, without


def _table(user: int, level: float, kind: str, rows: int) -> pd.DataFrame:
    steps = np.arange(rows, dtype=float)
    return pd.DataFrame({USER: user, TIME: steps, "level": level, "kind": kind})


def canary_tables(inside: np.ndarray, relation: NeighboringRelation) -> UserTables:
    """One dataset with many canaries: single rows, each in a category of its own.

    A few others are in each of these categories, so that its count is not cut off at 0.

    Args:
        inside: Which canaries are in, shape (canaries,). Under replace-one the others are replaced
            by a user of the common category.
        relation: The neighboring relation.
    """
    names = ("common", *(f"canary {number}" for number in range(len(inside))))
    schema = Schema(
        columns=(Column(name="kind", kind=ColumnKind.CATEGORICAL, categories=names),),
        unit=PrivacyUnit.USER,
        min_rows=1,
        max_rows=1,
        nominal_users=len(inside),
        title="audit: canaries",
    )
    replaced = int((~inside).sum()) * (relation is NeighboringRelation.REPLACE_ONE)
    kinds = [*names] * OTHERS + ["common"] * replaced
    kinds += [names[1 + i] for i in np.flatnonzero(inside)]
    frame = pd.DataFrame({USER: np.arange(len(kinds)), TIME: 0.0, "kind": kinds})
    return UserTables(schema=schema, train=frame, test=frame.iloc[:0])


def stream_windows(inside: ArrayLike, *, rng: np.random.Generator) -> SensorStreams:
    """Streams whose test windows are all alike, but for one sensor that is in some of them.

    That sensor reports its upper bound at every step; elsewhere it is absent, which is its removal
    and, for streams, also a replacement. Windows to fit on are made up, other for each `rng`.

    Args:
        inside: For each test window whether the sensor is in it.
        rng: Of what is public: the windows to fit on.
    """
    inside = np.asarray(inside, dtype=bool)
    there = rng.random((KNOWN, 1, SENSORS)) < rng.uniform(0.2, 0.8, (KNOWN, 1, 1))
    present = np.broadcast_to(there, (KNOWN, STEPS, SENSORS)).copy()
    present &= rng.random(present.shape) < 0.98
    test = np.zeros((len(inside), STEPS, SENSORS), dtype=bool)
    test[:, :, : SENSORS // 2] = True
    test[inside, :, -1] = True
    speed = rng.uniform(0.0, 40.0, (KNOWN, 1, SENSORS)) + rng.normal(0, 1, present.shape)
    fast = np.full(test.shape, 20.0)
    fast[:, :, -1] = 40.0
    speeds = np.concatenate([np.clip(speed, 0.0, 40.0), fast])
    seen = np.concatenate([present, test])
    position = np.broadcast_to(np.linspace(10.0, 90.0, STEPS)[:, None], speeds.shape)
    state = (seen * (0.5 + speeds / 80.0)).sum(axis=-1) + 0.5 * rng.normal(size=seen.shape[:2])
    return SensorStreams(
        schema=Schema(
            columns=(
                Column(name="position", unit="m", lower=0.0, upper=100.0),
                Column(name="speed", unit="m/s", lower=0.0, upper=40.0),
            ),
            unit=PrivacyUnit.SENSOR_TRAJECTORY,
            min_rows=STEPS,
            max_rows=STEPS,
            state=Column(name="density", lower=0.0),
            title="audit: sensor streams",
        ),
        observations=np.where(seen[..., None], np.stack([position, speeds], axis=-1), np.nan),
        present=seen,
        state=np.maximum(state, 0.0),
        split=np.repeat(list(Split), [KNOWN * 2 // 3, KNOWN - KNOWN * 2 // 3, len(inside)]),
        step_seconds=1.0,
    )
