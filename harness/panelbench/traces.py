"""What of a release may tell whether one person was in the data: named numbers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from panelbench.schema import USER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from panelbench.data import UserTables
    from panelbench.release import SyntheticTables

MOST = 60
"""Numbers of `info` that are looked at."""


def of_tables(release: SyntheticTables, person: UserTables) -> dict[str, float]:
    """Numbers of one release of user tables.

    How many tables and rows there are, where values lie, how many tables are as long as the
    person's or have the person's values in every row, how near the nearest one comes, and whatever
    numbers the mechanism tells about the release, which are part of it.

    Args:
        release: The release.
        person: The data with the person in question, who is the last user of `train`.
    """
    frame, schema = release.frame, release.schema
    own = person.train[person.train[USER] == person.train[USER].max()]
    users = frame[USER].to_numpy()
    order, lengths = np.unique(users, return_counts=True)
    found = {
        "tables": float(len(order)),
        "rows": float(len(frame)),
        "tables of the person's length": float((lengths == len(own)).sum()),
    }
    distance = np.zeros(len(frame))
    for column in schema.columns:
        values = frame[column.name].to_numpy()
        mine = own[column.name].iloc[0]
        if column.categories:
            apart = (values != mine).astype(float)
            found[f"{column.name}: rows as the person's"] = float((apart == 0).sum())
        else:
            low, high = column.lower or 0.0, column.upper or 1.0
            apart = np.abs(np.nan_to_num(values, nan=low) - mine) / (high - low)
            found[f"{column.name}: mean"] = float(np.nan_to_num(values, nan=low).mean())
            for share in (0.02, 0.06, 0.2, 0.5):
                found[f"{column.name}: rows within {share}"] = float((apart <= share).sum())
        distance = np.maximum(distance, apart)
    found["nearest row"] = float(distance.min())
    alike = np.bincount(np.searchsorted(order, users), weights=distance <= 0.06)
    found["tables like the person's"] = float(((alike == lengths) & (lengths == len(own))).sum())
    told = dict(list(_numbers("info", release.info))[:MOST])
    return found | told


def _numbers(name: str, value: object) -> Iterator[tuple[str, float]]:
    match value:
        case dict():
            for key in sorted(value):
                yield from _numbers(f"{name}.{key}", value[key])
        case list() | tuple():
            for place, item in enumerate(value):
                yield from _numbers(f"{name}.{place}", item)
        case bool() | int() | float() if math.isfinite(value):
            yield name, float(value)


def as_matrix(found: list[dict[str, float]]) -> tuple[list[str], np.ndarray]:
    """Names in order, and all numbers, (releases, names); what a release does not tell is 0."""
    names = sorted({name for numbers in found for name in numbers})
    return names, np.array([[numbers.get(name, 0.0) for name in names] for numbers in found])
