"""What all user tables need: lengths within the schema, and train and test users."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from panelbench import DataError

if TYPE_CHECKING:
    import pandas as pd

    from panelbench import Schema


def within_rows(frame: pd.DataFrame, schema: Schema, repairs: dict[str, int]) -> pd.DataFrame:
    """Keep the first max_rows rows of each user, and the users with at least min_rows rows.

    Both are rules about one user's own rows, so they cost no privacy. What they leave out is added
    to `repairs`. `frame` is sorted by user and time.
    """
    position = frame.groupby("user").cumcount()
    late = position >= schema.max_rows
    rows = frame.groupby("user")["user"].transform("size")
    short = rows < schema.min_rows
    repairs[f"rows after a user's first {schema.max_rows}"] = int(late.sum())
    repairs[f"users with fewer than {schema.min_rows} rows"] = int(
        frame.loc[short, "user"].nunique()
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
            f"Only {len(users)} users are left to split into train and test; at least 2 are needed."
        )
    count = min(max(1, round(test_share * len(users))), len(users) - 1)
    chosen = frame["user"].isin(rng.permutation(users)[:count]).to_numpy()
    return frame[~chosen], frame[chosen]
