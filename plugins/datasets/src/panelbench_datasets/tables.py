"""What all user tables need: minutes on the clock, lengths within the schema, train and test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from panelbench import DataError

if TYPE_CHECKING:
    import pandas as pd

    from panelbench import Schema
    from panelbench_datasets.files import Repairs

MIN_ROWS, MAX_ROWS = 4, 50


def check_lengths(min_rows: int, max_rows: int, *, least: int = 1) -> None:
    """Check the two fields that bound the length of a table."""
    if not least <= min_rows <= max_rows:
        raise ValueError(f"Give {least} <= min_rows <= max_rows, got {min_rows}, {max_rows}.")


def check_test_share(test_share: float) -> None:
    """Check the field that says which share of the users is in test."""
    if not 0 < test_share < 1:
        raise ValueError(f"test_share must lie strictly between 0 and 1, got {test_share}.")


def clock_minutes(frame: pd.DataFrame, moment: str) -> np.ndarray:
    """Minutes since the midnight before each user's first row, so that the hour can be recovered.

    `frame` is sorted by user and `moment`, a column of timestamps.
    """
    first = frame.groupby("user")[moment].transform("min").dt.normalize()
    minutes: np.ndarray = (frame[moment] - first).dt.total_seconds().to_numpy() / 60
    return minutes


def apart(frame: pd.DataFrame, time: np.ndarray, *, least: float) -> tuple[np.ndarray, int]:
    """Move rows later so that two rows of a user are at least `least` apart; count the moved ones.

    `frame` is sorted by user and `time`.
    """
    shift = frame.groupby("user").cumcount().to_numpy() * least
    lagged = frame[["user"]].assign(lag=time - shift).groupby("user")["lag"].cummax()
    moved = lagged.to_numpy() + shift
    late = moved > time + least / 2
    return np.where(late, moved, time), int(late.sum())


def within_rows(frame: pd.DataFrame, schema: Schema, repairs: Repairs) -> pd.DataFrame:
    """Keep the first max_rows rows of each user, and the users with at least min_rows rows.

    Both are rules about one user's own rows, so they cost no privacy. What they leave out is
    counted. `frame` is sorted by user and time.
    """
    late = frame.groupby("user").cumcount() >= schema.max_rows
    short = frame.groupby("user")["user"].transform("size") < schema.min_rows
    repairs.add(f"rows after a user's first {schema.max_rows}, left out", late.sum())
    repairs.add(
        f"users with fewer than {schema.min_rows} rows, left out",
        frame.loc[short, "user"].nunique(),
    )
    return frame[~late & ~short].reset_index(drop=True)


def split_users(
    frame: pd.DataFrame, *, test_share: float, rng: np.random.Generator
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Train and test rows, with `test_share` of the users in test, drawn without regard to rows.

    Raises:
        DataError: Where there are fewer than two users to split.
    """
    users = np.unique(frame["user"].to_numpy())
    if len(users) < 2:
        raise DataError(
            f"Only {len(users)} user is left to split into train and test after the filters; "
            f"at least 2 are needed."
        )
    count = min(max(1, round(test_share * len(users))), len(users) - 1)
    chosen = frame["user"].isin(rng.permutation(users)[:count]).to_numpy()
    return frame[~chosen], frame[chosen]
