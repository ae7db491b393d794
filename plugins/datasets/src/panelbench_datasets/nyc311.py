"""Service requests about a tax lot, from NYC Open Data's 311 table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pandas as pd

from panelbench import USER_TABLES, DataError, DataFile, DatasetSource, UserTables
from panelbench_datasets import service_requests as requests
from panelbench_datasets.files import (
    Repairs,
    coded,
    distinct,
    in_range,
    in_time_order,
    is_missing,
    locate,
    numbers,
    read_table,
    times,
    without_duplicates,
)
from panelbench_datasets.tables import (
    MAX_ROWS,
    MIN_ROWS,
    apart,
    check_lengths,
    check_test_share,
    clock_minutes,
    split_users,
    within_rows,
)

if TYPE_CHECKING:
    from pandas.api.extensions import ExtensionArray

    from panelbench import Column, Schema

SAMPLE = "nyc311-sample/nyc311_20230228_sample.csv.gz"
SAMPLE_SHA256 = "ae6301c34e62be51e3edb057537c96b76ae9ff79f2428390675c64ff5d8bbf62"
# The publication of PATH counts about 3 * 10^5 lots in ten months; the sample has none.
PUBLISHED_USERS = 300_000
FORMATS = ("%m/%d/%Y %I:%M:%S %p", "%Y-%m-%dT%H:%M:%S.%f", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S")
SECOND = 1 / 60
# Renamed since, or spelled in two ways.
ALIASES = {
    "agency": {"DCA": "DCWP", "NYC311-PRD": "OTI", "DOITT": "OTI"},
    "location_type": {"3+ FAMILY APARTMENT BUILDING": "3+ FAMILY APT. BUILDING"},
    "complaint_type": {"HEATING": "HEAT/HOT WATER", "PAINT - PLASTER": "PAINT/PLASTER"},
}


def tax_lots(values: np.ndarray) -> np.ndarray:
    """True where a number is a borough-block-lot: ten digits, the first a borough from 1 to 5."""
    whole = values == np.floor(values)
    lot: np.ndarray = whole & (values >= 1_000_000_000) & (values < 6_000_000_000)
    return lot


def in_vocabulary(values: pd.Series, column: Column, repairs: Repairs) -> ExtensionArray:
    """Entries in the public vocabulary; unknown ones become the column's catch-all, counted."""
    words, codes = distinct(values)
    absent = is_missing(words)
    text = words.astype(str).str.strip().str.upper().replace(ALIASES.get(column.name, {}))
    fallback = requests.UNSPECIFIED if column.name == "borough" else requests.OTHER
    unknown = ~text.isin(column.categories).to_numpy() & ~absent
    repairs.add(f"{column.name}: not in the vocabulary, now {fallback}", unknown[codes].sum())
    known = text.astype(object).mask(unknown, fallback)
    if column.nullable:
        known = known.mask(absent, np.nan)
    else:
        repairs.add(f"{column.name}: missing, now {fallback}", absent[codes].sum())
        known = known.mask(absent, fallback)
    return coded(known, codes, column.categories)


@dataclass(frozen=True, kw_only=True)
class Nyc311(DatasetSource):
    """311 service requests: one table a tax lot (BBL), requests in time order.

    Reads the portal's names ("Created Date") and the interface's ("created_date"). The time is in
    minutes since the midnight before the lot's first request. Complaint types are compared without
    regard to case, since agencies spell them differently.

    Repairs, all counted: requests without a valid BBL are left out; repeated Unique Keys; rows out
    of time order; requests of a lot in the same second are moved a second apart; entries outside
    the public vocabularies become OTHER, or UNSPECIFIED for the borough; coordinates outside the
    city become missing.

    Attributes:
        file: Path of a CSV, gzip CSV or Parquet file below the data directory; the default is a
            sample of one afternoon.
        min_rows: Lots with fewer requests are left out.
        max_rows: Requests after a lot's first max_rows are left out.
        test_share: Share of lots in test.
        coordinates: Whether to read latitude and longitude; the sample has none.
    """

    name: ClassVar[str] = "nyc311"
    kind: ClassVar[str] = USER_TABLES

    file: str = SAMPLE
    min_rows: int = MIN_ROWS
    max_rows: int = MAX_ROWS
    test_share: float = 0.1
    coordinates: bool = False

    def __post_init__(self) -> None:
        check_lengths(self.min_rows, self.max_rows)
        check_test_share(self.test_share)

    def files(self) -> tuple[DataFile, ...]:
        """The table of requests."""
        return (
            DataFile(
                path=self.file,
                sha256=SAMPLE_SHA256 if self.file == SAMPLE else None,
                instructions=(
                    "Export '311 Service Requests from 2010 to Present' (erm2-nwe9) from NYC Open "
                    "Data as CSV, for example Created Date from 2024-10-01 to 2025-08-01."
                ),
            ),
        )

    def schema(self) -> Schema:
        """The public schema."""
        return requests.schema(
            min_rows=self.min_rows,
            max_rows=self.max_rows,
            nominal_users=None if self.file == SAMPLE else PUBLISHED_USERS,
            coordinates=self.coordinates,
            title="Service requests by tax lot (NYC 311)",
        )

    def load(self, *, rng: np.random.Generator) -> UserTables:
        """Read, repair, filter and split."""
        (wanted,) = self.files()
        schema = self.schema()
        names = [column.name for column in schema.columns]
        raw = read_table(
            locate(wanted), ["created_date", "bbl", *names], ["unique_key"], file=self.file
        )
        repairs = Repairs()
        keys = ["unique_key"] if "unique_key" in raw else list(raw.columns)
        raw = without_duplicates(raw, keys, repairs)
        lot = numbers(raw, "bbl", file=self.file)
        valid = tax_lots(lot)
        repairs.add("requests without a BBL, left out", np.isnan(lot).sum())
        repairs.add("requests with an invalid BBL, left out", (~np.isnan(lot) & ~valid).sum())
        raw, lot = raw[valid], lot[valid]
        if not len(raw):
            raise DataError(f"File '{self.file}', column 'bbl': no valid lot; expected ten digits.")
        frame = pd.DataFrame(
            {
                "user": lot.astype(np.int64),
                "moment": times(raw, "created_date", formats=FORMATS, file=self.file),
            },
            index=raw.index,
        )
        for column in schema.categorical:
            frame[column.name] = in_vocabulary(raw[column.name], column, repairs)
        for column in schema.numeric:
            values = numbers(raw, column.name, file=self.file)
            frame[column.name] = in_range(values, column=column, repairs=repairs)
        frame = in_time_order(frame, "user", "moment", repairs)
        frame["time"], moved = apart(frame, clock_minutes(frame, "moment"), least=SECOND)
        repairs.add("requests moved later, in the same second as another of the lot", moved)
        frame = within_rows(frame.drop(columns="moment"), schema, repairs)
        train, test = split_users(frame, test_share=self.test_share, rng=rng)
        return UserTables(schema=schema, train=train, test=test, repairs=repairs.counts)
