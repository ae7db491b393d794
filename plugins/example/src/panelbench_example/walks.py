"""A simulated dataset."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from panelbench import USER_TABLES, Column, DatasetSource, PrivacyUnit, Schema, UserTables


@dataclass(frozen=True, kw_only=True)
class Walks(DatasetSource):
    """Random walks between -10 and 10, five to twenty steps a user.

    Attributes:
        users: Number of training users; a fifth as many test users come on top.
    """

    name = "walks"
    kind = USER_TABLES

    users: int = 500

    def __post_init__(self) -> None:
        if self.users < 10:
            raise ValueError(f"users must be at least 10, got {self.users}.")

    def load(self, *, rng: np.random.Generator) -> UserTables:
        """Simulate; every draw comes from `rng`."""
        total = self.users + self.users // 5
        rows = rng.integers(5, 21, total)
        user = np.repeat(np.arange(total), rows)
        step = np.concatenate([np.arange(n) for n in rows])
        walk = np.concatenate([np.cumsum(rng.normal(size=n)) for n in rows])
        frame = pd.DataFrame({"user": user, "time": step, "position": np.clip(walk, -10, 10)})
        return UserTables(
            schema=Schema(
                columns=(Column(name="position", unit="m", lower=-10.0, upper=10.0),),
                unit=PrivacyUnit.USER,
                min_rows=5,
                max_rows=20,
                nominal_users=self.users,
                title="random walks",
            ),
            train=frame[user < self.users],
            test=frame[user >= self.users],
        )
