"""A parametric look-alike of service requests by tax lot; no real row is in it.

Shares are round numbers from the city's published yearly counts; hours and repeats are plausible,
not fitted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pandas as pd

from panelbench import USER_TABLES, DatasetSource, UserTables
from panelbench_datasets import service_requests as requests
from panelbench_datasets.tables import MAX_ROWS, MIN_ROWS, check_lengths

MINUTES_A_DAY = 1440
REPEAT = 0.45
SAME_REPORT = 0.2
GAP_DAYS, GAP_SPREAD, LONGEST_DAYS = 6.0, 1.5, 150.0
LENGTH_MEAN, LENGTH_SPREAD = 1.1, 1.2


@dataclass(frozen=True, kw_only=True)
class _Type:
    """What a complaint type looks like: who answers, where, and at which hour it peaks."""

    agency: str
    location: str
    hour: float
    spread: float


HOME, HOUSE, CURB, ROAD = (
    "RESIDENTIAL BUILDING",
    "RESIDENTIAL BUILDING/HOUSE",
    "STREET/SIDEWALK",
    "STREET",
)
TYPES = {
    "HEAT/HOT WATER": _Type(agency="HPD", location=HOME, hour=10, spread=5),
    "UNSANITARY CONDITION": _Type(agency="HPD", location=HOME, hour=13, spread=4),
    "PAINT/PLASTER": _Type(agency="HPD", location=HOME, hour=13, spread=4),
    "PLUMBING": _Type(agency="HPD", location=HOME, hour=13, spread=4),
    "DOOR/WINDOW": _Type(agency="HPD", location=HOME, hour=13, spread=4),
    "WATER LEAK": _Type(agency="HPD", location=HOME, hour=14, spread=5),
    "NOISE - RESIDENTIAL": _Type(agency="NYPD", location=HOUSE, hour=23, spread=3),
    "NOISE - STREET/SIDEWALK": _Type(agency="NYPD", location=CURB, hour=22, spread=3),
    "NOISE - COMMERCIAL": _Type(agency="NYPD", location="STORE/COMMERCIAL", hour=23, spread=2.5),
    "ILLEGAL PARKING": _Type(agency="NYPD", location=CURB, hour=16, spread=5),
    "BLOCKED DRIVEWAY": _Type(agency="NYPD", location=CURB, hour=17, spread=5),
    "ABANDONED VEHICLE": _Type(agency="NYPD", location=CURB, hour=13, spread=4),
    "STREET CONDITION": _Type(agency="DOT", location=ROAD, hour=12, spread=4),
    "DIRTY CONDITION": _Type(agency="DSNY", location="SIDEWALK", hour=11, spread=3),
    "RODENT": _Type(agency="DOHMH", location="3+ FAMILY APT. BUILDING", hour=13, spread=4),
    "GENERAL CONSTRUCTION/PLUMBING": _Type(agency="DOB", location="", hour=12, spread=3),
    "OTHER": _Type(agency="OTHER", location="OTHER", hour=13, spread=4),
}
NAMES = tuple(TYPES)
# Rows: apartment buildings, noisy places, curbs, the rest. Columns: the types above.
LOT_SHARES = (0.4, 0.22, 0.25, 0.13)
LOT_TYPES = np.array(
    [
        [30, 14, 10, 9, 7, 6, 12, 2, 0, 2, 1, 0, 0, 1, 3, 1, 2],
        [4, 2, 1, 1, 1, 1, 40, 20, 16, 6, 2, 1, 0, 1, 1, 1, 2],
        [1, 1, 0, 0, 0, 0, 6, 6, 2, 45, 25, 6, 3, 2, 1, 1, 1],
        [3, 2, 2, 2, 1, 2, 6, 3, 2, 6, 4, 5, 14, 14, 10, 12, 12],
    ],
    dtype=np.float64,
)
BOROUGH_SHARES = (0.24, 0.30, 0.19, 0.23, 0.038, 0.002)
CHANNEL_SHARES = (0.2, 0.45, 0.3, 0.05, 0.0)
LOCATION_MISSING = 0.04
FIRST_LOT = 1_000_000_001


@dataclass(frozen=True, kw_only=True)
class Nyc311Like(DatasetSource):
    """Look-alike of `nyc311`: the same schema (without coordinates), simulated tax lots.

    A lot is of one of four hidden kinds, which sets the shares of complaint types. A request
    repeats the type before it with probability 0.45. Days between requests are log-normal and
    heavy-tailed; one request in five belongs to the same report and follows within the minute.
    The hour has a profile of its type. Lengths are log-normal, cut at max_rows.

    Attributes:
        users: Users in train.
        test_users: Users in test.
        min_rows: Fewest rows of a table.
        max_rows: Most rows of a table.
    """

    name: ClassVar[str] = "nyc311-like"
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
        """Simulate lots numbered from 1000000001, test lots last."""
        total = self.users + self.test_users
        extra = rng.lognormal(LENGTH_MEAN, LENGTH_SPREAD, total).astype(np.int64)
        lengths = np.minimum(self.min_rows + extra, self.max_rows)
        rows = int(lengths.max())
        inside = np.arange(rows) < lengths[:, None]
        same = rng.random((total, rows)) < SAME_REPORT
        kinds = _types(total, rows, rng)
        time = _times(kinds, same, rng)[inside]
        kind, user = kinds[inside], np.nonzero(inside)[0]
        borough = rng.choice(len(requests.BOROUGHS), total, p=BOROUGH_SHARES)
        channel = rng.choice(len(requests.CHANNELS), len(user), p=CHANNEL_SHARES)
        where = _codes([TYPES[name].location for name in NAMES], requests.LOCATIONS)[kind]
        where = np.where(rng.random(len(user)) < LOCATION_MISSING, -1, where)
        codes = {
            "complaint_type": _codes(NAMES, requests.COMPLAINTS)[kind],
            "agency": _codes([TYPES[name].agency for name in NAMES], requests.AGENCIES)[kind],
            "borough": borough[user],
            "location_type": where,
            "open_data_channel_type": channel,
        }
        frame = pd.DataFrame({"user": FIRST_LOT + user, "time": time})
        for column in requests.CATEGORICAL:
            frame[column.name] = pd.Categorical.from_codes(
                codes[column.name].tolist(), categories=pd.Index(column.categories)
            )
        train = user < self.users
        return UserTables(
            schema=requests.schema(
                min_rows=self.min_rows,
                max_rows=self.max_rows,
                nominal_users=self.users,
                coordinates=False,
                title="Look-alike of service requests by tax lot",
            ),
            train=frame[train],
            test=frame[~train],
        )


def _codes(names: list[str] | tuple[str, ...], categories: tuple[str, ...]) -> np.ndarray:
    """The code of each name, -1 for an empty one."""
    return np.array([categories.index(name) if name else -1 for name in names])


def _types(lots: int, rows: int, rng: np.random.Generator) -> np.ndarray:
    """Complaint types as indices into `NAMES`, shape (lots, rows)."""
    lot = rng.choice(len(LOT_SHARES), lots, p=LOT_SHARES)
    cumulative = (LOT_TYPES / LOT_TYPES.sum(axis=1, keepdims=True)).cumsum(axis=1)[lot, :-1]
    kinds = np.zeros((lots, rows), dtype=np.int64)
    for row in range(rows):
        kinds[:, row] = (rng.random(lots)[:, None] >= cumulative).sum(axis=1)
        if row:
            again = rng.random(lots) < REPEAT
            kinds[again, row] = kinds[again, row - 1]
    return kinds


def _times(kinds: np.ndarray, same: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Minutes since the midnight before the first request, to the second, shape (lots, rows)."""
    hour = np.array([TYPES[name].hour for name in NAMES])[kinds]
    spread = np.array([TYPES[name].spread for name in NAMES])[kinds]
    minute = rng.normal(hour, spread) * 60 % MINUTES_A_DAY
    gap = rng.lognormal(np.log(GAP_DAYS), GAP_SPREAD, kinds.shape)
    days = np.floor(np.minimum(gap, LONGEST_DAYS))
    seconds = rng.integers(1, 60, kinds.shape) / 60
    time = np.zeros(kinds.shape)
    time[:, 0] = minute[:, 0]
    for row in range(1, kinds.shape[1]):
        before = time[:, row - 1]
        midnight = before // MINUTES_A_DAY * MINUTES_A_DAY
        fresh = midnight + days[:, row] * MINUTES_A_DAY + minute[:, row]
        fresh = np.where(fresh > before + 1, fresh, before + 30)
        time[:, row] = np.where(same[:, row], before + seconds[:, row], fresh)
    result: np.ndarray = np.round(time * 60) / 60
    return result
