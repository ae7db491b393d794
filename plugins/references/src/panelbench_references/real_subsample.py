"""Real training tables as they are: the ceiling that private releases are read against."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from panelbench import (
    USER_TABLES,
    DataError,
    Established,
    Guarantee,
    Mechanism,
    Role,
    SyntheticTables,
    UserTables,
)

if TYPE_CHECKING:
    from panelbench import Budget, Dataset


@dataclass(frozen=True, kw_only=True)
class RealSubsample(Mechanism):
    """A uniform sample of the training users, without replacement, under new user numbers.

    At most half of the users are taken, rounded down, so that metrics keep real tables to compare
    with that are not in the release (path.md 2.4); `copied_users` names those taken. How many were
    asked for, taken and available is in `info`.

    Formal guarantee:
        None. The release is private data.

    Attributes:
        size: How many users to take.
    """

    name: ClassVar[str] = "real-subsample"
    kind: ClassVar[str] = USER_TABLES
    role: ClassVar[Role] = Role.REFERENCE

    size: int = 1000

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ValueError(f"size must be at least 1, got {self.size}.")

    def release(
        self, dataset: Dataset, budget: Budget, *, rng: np.random.Generator
    ) -> SyntheticTables:
        """Copy the sampled users' rows.

        Raises:
            DataError: Where there are fewer than two training users.
        """
        if not isinstance(dataset, UserTables):
            raise DataError(f"real-subsample needs user tables, got {dataset.kind}.")
        users = dataset.train["user"].unique()
        taken = min(self.size, len(users) // 2)
        if not taken:
            raise DataError(
                f"real-subsample takes at most half of the training users, and there are "
                f"{len(users)}; give it a dataset with at least two."
            )
        copied = np.sort(rng.choice(users, size=taken, replace=False))
        frame = dataset.train[dataset.train["user"].isin(copied)]
        numbers = rng.permutation(taken)  # else the new numbers would keep the users' order
        return SyntheticTables(
            schema=dataset.schema,
            frame=frame.assign(user=numbers[np.searchsorted(copied, frame["user"])]),
            guarantee=Guarantee(
                established=Established.NONE, unit=dataset.schema.unit, relation=budget.relation
            ),
            copied_users=copied,
            info={"asked": self.size, "taken": taken, "training_users": len(users)},
        )
