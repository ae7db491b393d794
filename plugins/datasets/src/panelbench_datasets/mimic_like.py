"""A parametric look-alike of emergency department vital signs; no real row is in it.

Its parameters are round numbers from medical common knowledge and from the published summary of
the open demo (missing shares, rows a stay, means), not fitted to patients.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pandas as pd

from panelbench import USER_TABLES, DatasetSource, UserTables
from panelbench_datasets import vitals
from panelbench_datasets.tables import MAX_ROWS, MIN_ROWS, check_lengths

MINUTES_A_DAY = 1440
MEAN_STAYS, MEAN_ROWS_A_STAY = 2.0, 5.0
ROW_GAP_MINUTES, ROW_GAP_SPREAD = 80.0, 0.9
STAY_GAP_DAYS, STAY_GAP_SPREAD, LONGEST_DAYS = 60.0, 1.6, 1500.0
PERSISTENCE = 0.7
TAIL_FREEDOM = 4
# Column: mean, spread among people, spread within a person, weight of acuity, missing share.
VITALS = {
    "temperature": (98.1, 0.3, 0.6, 0.5, 0.44),
    "heartrate": (80.0, 10.0, 9.0, 12.0, 0.04),
    "resprate": (17.2, 1.2, 1.8, 1.6, 0.06),
    "o2sat": (98.3, 0.9, 1.2, -1.0, 0.07),
    "sbp": (129.0, 16.0, 12.0, -4.0, 0.04),
    "dbp": (73.0, 9.0, 9.0, -2.0, 0.04),
    "pain": (0.5, 3.5, 1.5, 1.5, 0.29),
}
RHYTHM_RECORDED = 0.03
RHYTHM_WEIGHTS = (0.55, 0.15, 0.05, 0.15, 0.03, 0.05, 0.02)
SLIP = 0.002
ACUITY_DECAY = 0.8


def _lengths(users: int, low: int, high: int, rng: np.random.Generator) -> np.ndarray:
    """Table lengths: rows of several stays, as drawn for people who reach `low`, cut at `high`."""
    stays = rng.geometric(1 / MEAN_STAYS, users)
    extra = rng.negative_binomial(stays, 1 / (1 + MEAN_ROWS_A_STAY), users)
    return np.minimum(low + extra, high)


@dataclass(frozen=True, kw_only=True)
class MimicLike(DatasetSource):
    """Look-alike of `mimic-iv-ed`: the same schema, simulated patients.

    A patient has a baseline for each vital sign and comes for one or more stays. In a stay an
    acuity starts high and decays, moving heart rate, breathing, temperature and pain together;
    around it each vital sign is an autoregressive process with Student t noise (4 degrees of
    freedom). Gaps between rows and between stays are log-normal. Values are missing at random at
    the demo's shares; about one value in 500 is a digit slip within the bounds.

    Attributes:
        users: Users in train.
        test_users: Users in test.
        min_rows: Fewest rows of a table.
        max_rows: Most rows of a table.
    """

    name: ClassVar[str] = "mimic-like"
    kind: ClassVar[str] = USER_TABLES

    users: int = 20_000
    test_users: int = 2_000
    min_rows: int = MIN_ROWS
    max_rows: int = MAX_ROWS

    def __post_init__(self) -> None:
        if self.users < 1 or self.test_users < 1:
            raise ValueError(
                f"users and test_users must be at least 1, got {self.users}, {self.test_users}."
            )
        check_lengths(self.min_rows, self.max_rows)

    def load(self, *, rng: np.random.Generator) -> UserTables:
        """Simulate patients 0, 1, 2, ... with test patients last."""
        total = self.users + self.test_users
        lengths = _lengths(total, self.min_rows, self.max_rows, rng)
        inside = np.arange(int(lengths.max())) < lengths[:, None]
        admitted = _admissions(inside, rng)
        frame = pd.DataFrame(
            {
                "user": np.nonzero(inside)[0],
                "time": _times(admitted, rng)[inside],
                **_signs(admitted, inside, rng),
            }
        )
        recorded = rng.random(len(frame)) < RHYTHM_RECORDED
        code = rng.choice(len(vitals.RHYTHMS), len(frame), p=RHYTHM_WEIGHTS)
        frame["rhythm"] = pd.Categorical.from_codes(
            np.where(recorded, code, -1).tolist(), categories=pd.Index(vitals.RHYTHMS)
        )
        train = frame["user"] < self.users
        return UserTables(
            schema=vitals.schema(
                min_rows=self.min_rows,
                max_rows=self.max_rows,
                nominal_users=self.users,
                title="Look-alike of vital signs in the emergency department",
            ),
            train=frame[train],
            test=frame[~train],
        )


def _admissions(inside: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """True where a new stay starts, shape (users, rows); the first row always does."""
    admitted = rng.random(inside.shape) < 1 / (1 + MEAN_ROWS_A_STAY)
    admitted[:, 0] = True
    return admitted


def _times(admitted: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Whole minutes since the midnight before the first row, shape (users, rows)."""
    gap = rng.lognormal(np.log(ROW_GAP_MINUTES), ROW_GAP_SPREAD, admitted.shape)
    days = rng.lognormal(np.log(STAY_GAP_DAYS), STAY_GAP_SPREAD, admitted.shape)
    away = np.minimum(days, LONGEST_DAYS) * MINUTES_A_DAY
    steps = np.maximum(np.round(np.where(admitted, away, gap)), 1)
    # Arrivals peak in the early afternoon.
    steps[:, 0] = np.round(rng.normal(14 * 60, 5 * 60, len(steps))) % MINUTES_A_DAY
    result: np.ndarray = steps.cumsum(axis=1)
    return result


def _signs(
    admitted: np.ndarray, inside: np.ndarray, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """Numeric columns, one value a row inside a table."""
    users, rows = admitted.shape
    acuity = np.zeros((users, rows))
    fresh = rng.gamma(1.2, 0.8, (users, rows))
    for row in range(rows):
        fading = ACUITY_DECAY * acuity[:, row - 1]
        acuity[:, row] = np.where(admitted[:, row], fresh[:, row], fading)
    innovation = np.sqrt((1 - PERSISTENCE**2) * (TAIL_FREEDOM - 2) / TAIL_FREEDOM)
    columns: dict[str, np.ndarray] = {}
    for column in vitals.COLUMNS:
        if column.name not in VITALS:
            continue
        mean, among, within, weight, missing = VITALS[column.name]
        noise = innovation * rng.standard_t(TAIL_FREEDOM, (users, rows))
        for row in range(1, rows):
            noise[:, row] += PERSISTENCE * noise[:, row - 1]
        own = rng.normal(mean, among, (users, 1))
        value = (own + weight * acuity + within * noise)[inside]
        slipped = rng.random(value.shape) < SLIP
        value = np.where(slipped, value * rng.choice([0.5, 1.6], value.shape), value)
        value = np.round(value, 1 if column.name == "temperature" else 0)
        value = np.clip(value, column.lower, column.upper) + 0.0  # no negative zero
        columns[column.name] = np.where(rng.random(value.shape) < missing, np.nan, value)
    return columns
