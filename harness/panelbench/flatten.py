"""The first rows of every user table as one wide table, and back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from panelbench.schema import ColumnKind

if TYPE_CHECKING:
    from panelbench.schema import Schema


@dataclass(frozen=True, kw_only=True)
class Wide:
    """Values by user and step.

    Attributes:
        cells: For each column, and for "time" where times are irregular, shape (users, steps).
            Categories are codes, -1 for missing. Times are the first row's time, then gaps.
            What lies beyond a user's last row is meaningless.
        lengths: Rows of each user, at most `steps`; shape (users,).
    """

    cells: dict[str, np.ndarray]
    lengths: np.ndarray

    @property
    def steps(self) -> int:
        """Number of steps."""
        return int(next(iter(self.cells.values())).shape[1])

    @property
    def present(self) -> np.ndarray:
        """Which cells hold a row, shape (users, steps)."""
        present: np.ndarray = np.arange(self.steps) < self.lengths[:, None]
        return present


def flatten(frame: pd.DataFrame, schema: Schema, *, steps: int, pad: bool) -> Wide:
    """The first `steps` rows of every user.

    Users with fewer rows are left out, which is a predicate on the user alone, or kept and padded.
    """
    users = frame["user"].to_numpy()
    starts = np.flatnonzero(np.diff(users, prepend=users[0] - 1 if len(users) else 0))
    rows = np.diff(starts, append=len(users))
    lengths = np.minimum(rows, steps)
    keep = np.ones(len(starts), dtype=bool) if pad else rows >= steps
    starts, lengths = starts[keep], lengths[keep]
    at = starts[:, None] + np.minimum(np.arange(steps), np.maximum(lengths - 1, 0)[:, None])
    values: dict[str, np.ndarray] = {}
    for column in schema.columns:
        series = frame[column.name]
        if column.kind is ColumnKind.CATEGORICAL:
            values[column.name] = series.cat.codes.to_numpy(dtype=np.int64)[at]
        else:
            values[column.name] = series.to_numpy(dtype=np.float64)[at]
    if not schema.regular:
        time = frame["time"].to_numpy(dtype=np.float64)[at]
        values["time"] = np.concatenate([time[:, :1], np.diff(time, axis=1)], axis=1)
    return Wide(cells=values, lengths=lengths)


def unflatten(wide: Wide, schema: Schema) -> pd.DataFrame:
    """The long frame of a wide table, users numbered from 0; the inverse of `flatten`."""
    count, steps = len(wide.lengths), wide.steps
    present = wide.present
    if schema.regular:
        time = np.broadcast_to(np.arange(steps, dtype=np.float64), (count, steps))
    else:
        time = np.cumsum(wide.cells["time"], axis=1)
    data: dict[str, object] = {
        "user": np.broadcast_to(np.arange(count)[:, None], (count, steps))[present],
        "time": time[present],
    }
    for column in schema.columns:
        values = wide.cells[column.name][present]
        if column.kind is ColumnKind.CATEGORICAL:
            data[column.name] = pd.Categorical.from_codes(
                values.tolist(), categories=pd.Index(column.categories)
            )
        else:
            data[column.name] = values
    return pd.DataFrame(data)
