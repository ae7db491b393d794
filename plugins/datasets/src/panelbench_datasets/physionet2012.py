"""Vital signs in the first 48 hours in intensive care, from the PhysioNet/CinC Challenge 2012."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pandas as pd
import pyarrow as pa

from panelbench import (
    USER_TABLES,
    Column,
    DataError,
    DataFile,
    DatasetSource,
    PrivacyUnit,
    Schema,
    UserTables,
)
from panelbench_datasets.files import (
    READ_ERRORS,
    Repairs,
    at_row,
    damaged,
    identifiers,
    in_range,
    in_time_order,
    locate,
    match_columns,
    numbers,
    read_csv,
    read_table,
    without_duplicates,
)
from panelbench_datasets.tables import (
    MIN_ROWS,
    check_lengths,
    check_test_share,
    split_users,
    within_rows,
)

if TYPE_CHECKING:
    from pathlib import Path

SAMPLE = "physionet2012-set-a/set_a_long.parquet"
SAMPLE_SHA256 = "4edd94f3eac9587d23da8382aa1abddde44ffff3584f768bad93b3e45c08f552"
HOURS = 48
SET_USERS = 4000  # each of the challenge's sets has 4,000 patients by its publication
PATIENT_HEADER = ("Time", "Parameter", "Value")

COLUMNS = (
    Column(name="HR", unit="1/min", lower=10.0, upper=300.0, integer=True, nullable=True),
    Column(name="RespRate", unit="1/min", lower=1.0, upper=80.0, integer=True, nullable=True),
    Column(name="SysBP", unit="mmHg", lower=30.0, upper=300.0, integer=True, nullable=True),
    Column(name="DiasBP", unit="mmHg", lower=10.0, upper=200.0, integer=True, nullable=True),
    Column(name="Temp", unit="degC", lower=25.0, upper=45.0, nullable=True),
    Column(name="SaO2", unit="%", lower=30.0, upper=100.0, integer=True, nullable=True),
    Column(name="GCS", unit="3 to 15", lower=3.0, upper=15.0, integer=True, nullable=True),
)
# Parameters of the source by column, the preferred one last: an arterial line beats a cuff.
SOURCES = {
    "HR": ("HR",),
    "RespRate": ("RespRate",),
    "SysBP": ("NISysABP", "SysABP"),
    "DiasBP": ("NIDiasABP", "DiasABP"),
    "Temp": ("Temp",),
    "SaO2": ("SaO2",),
    "GCS": ("GCS",),
}


def read_patients(folder: Path, *, file: str) -> pd.DataFrame:
    """The official layout: a folder with one text file a patient, named by the RecordID.

    Raises:
        DataError: On a folder without such files, an empty file, or one with another header.
    """
    paths = sorted(folder.glob("*.txt"))
    if not paths:
        raise DataError(
            f"Folder '{file}' has no .txt files; expected one a patient, such as 132539.txt."
        )
    lines: list[str] = []
    for path in paths:
        name = f"{file}/{path.name}"
        if not path.stem.isdigit():
            raise DataError(f"File '{name}' is not named by a RecordID, such as 132539.txt.")
        try:
            head, *rows = path.read_text(encoding="utf-8").splitlines() or [""]
        except READ_ERRORS as error:
            raise damaged(name, error) from error
        match_columns(head.split(","), PATIENT_HEADER, file=name)
        lines += [f"{path.stem},{row}" for row in rows if row.strip()]
    names = ("RecordID", *PATIENT_HEADER)
    try:
        return read_csv(pa.BufferReader("\n".join(lines).encode()), names, names=names)
    except READ_ERRORS as error:
        raise damaged(file, error) from error


def minutes(frame: pd.DataFrame, *, file: str) -> np.ndarray:
    """Minutes since admission from texts such as "07:45" or "48:00".

    Raises:
        DataError: On another format, or a time outside 00:00 to 48:00.
    """
    # Few distinct times, many rows: parse each distinct one once.
    codes, distinct = pd.factorize(frame["Time"].astype(str).str.strip())
    parts = pd.Series(distinct).str.extract(r"^(\d{1,2}):([0-5]\d)$").astype(np.float64)
    value = (parts[0] * 60 + parts[1]).to_numpy()
    value = np.where(value <= HOURS * 60, value, np.nan)[codes]
    bad = np.isnan(value)
    if bad.any():
        raise at_row(frame, "Time", bad, file=file, expected="a time from 00:00 to 48:00")
    return value


@dataclass(frozen=True, kw_only=True)
class Physionet2012(DatasetSource):
    """Hourly vital signs in intensive care, one table a patient (RecordID).

    Columns: HR, RespRate, SysBP and DiasBP (arterial line where there is one in that hour, else
    the cuff), Temp, SaO2 and GCS. MAP follows from the two pressures and is left out, as are
    laboratory values, which are mostly missing on an hourly grid.

    Rule: the last valid measurement of an hour counts; one at 48:00 belongs to the last hour. A
    table runs from the first hour with any measurement to the last; hours between without one are
    rows of missing values. Values outside the physiological bounds (0 for a loose sensor, say)
    become missing. What was left out or replaced is counted.

    Attributes:
        file: Below the data directory, a Parquet or CSV file with the columns RecordID, Time,
            Parameter and Value, or a folder of the official text files, one a patient.
        min_rows: Patients with fewer hours are left out.
        max_rows: Hours after a table's first max_rows are left out, at most 48.
        test_share: Share of patients in test.
    """

    name: ClassVar[str] = "physionet2012"
    kind: ClassVar[str] = USER_TABLES

    file: str = SAMPLE
    min_rows: int = MIN_ROWS
    max_rows: int = HOURS
    test_share: float = 0.1

    def __post_init__(self) -> None:
        check_lengths(self.min_rows, self.max_rows)
        if self.max_rows > HOURS:
            raise ValueError(f"max_rows can be at most {HOURS} hours, got {self.max_rows}.")
        check_test_share(self.test_share)

    def files(self) -> tuple[DataFile, ...]:
        """The measurements."""
        return (
            DataFile(
                path=self.file,
                sha256=SAMPLE_SHA256 if self.file == SAMPLE else None,
                instructions=(
                    "Take set-a of PhysioNet, 'Predicting Mortality of ICU Patients: The "
                    "PhysioNet/Computing in Cardiology Challenge 2012' 1.0.0, and unpack it."
                ),
            ),
        )

    def schema(self) -> Schema:
        """The public schema."""
        return Schema(
            columns=COLUMNS,
            unit=PrivacyUnit.USER,
            min_rows=self.min_rows,
            max_rows=self.max_rows,
            time_unit="hour",
            regular=True,
            nominal_users=SET_USERS,
            title="Hourly vital signs in intensive care (PhysioNet 2012)",
        )

    def load(self, *, rng: np.random.Generator) -> UserTables:
        """Read, repair, put on the hourly grid, filter and split."""
        (wanted,) = self.files()
        path = locate(wanted)
        if path.is_dir():
            raw = read_patients(path, file=self.file)
        else:
            raw = read_table(path, ["RecordID", *PATIENT_HEADER], file=self.file)
        repairs = Repairs()
        everyone = identifiers(raw, "RecordID", file=self.file)
        used = [parameter for names in SOURCES.values() for parameter in names]
        if raw["Parameter"].dtype != "category":
            raw["Parameter"] = raw["Parameter"].astype(str).str.strip()
        chosen = raw["Parameter"].isin(used).to_numpy()
        if not chosen.any():
            raise DataError(
                f"File '{self.file}', column 'Parameter': none of {', '.join(used)} occurs."
            )
        rows = raw[chosen]
        long = pd.DataFrame(
            {
                "user": everyone[chosen],
                "minute": minutes(rows, file=self.file),
                "parameter": pd.Categorical(rows["Parameter"].astype(object), categories=used),
                "value": numbers(rows, "Value", file=self.file),
            }
        )
        repairs.add(
            "patients without any vital sign, left out", len(np.setdiff1d(everyone, long["user"]))
        )
        long = without_duplicates(long, ["user", "minute", "parameter", "value"], repairs)
        long = in_time_order(long, "user", "minute", repairs)
        frame = _hourly(long, repairs)
        schema = self.schema()
        frame = within_rows(frame, schema, repairs)
        train, test = split_users(frame, test_share=self.test_share, rng=rng)
        return UserTables(schema=schema, train=train, test=test, repairs=repairs.counts)


def _hourly(long: pd.DataFrame, repairs: Repairs) -> pd.DataFrame:
    """One row an hour from each patient's first measured hour to the last, sorted."""
    long["hour"] = np.minimum(long["minute"] // 60, HOURS - 1).astype(np.int64)
    absent = long["value"].isna()
    repairs.add("measurements without a value, left out", absent.sum())
    cells: dict[str, pd.Series] = {}
    dropped = 0
    for column in COLUMNS:
        for parameter in SOURCES[column.name]:
            part = long[(long["parameter"] == parameter) & ~absent]
            part = part.assign(
                value=in_range(part["value"].to_numpy(), column=column, repairs=repairs)
            )
            part = part[part["value"].notna()]
            last = part.groupby(["user", "hour"])["value"].last()
            dropped += len(part) - len(last)
            before = cells.get(column.name)
            if before is not None:
                both = last.index.intersection(before.index)
                repairs.add(
                    f"{column.name}: hours with a cuff value beside the arterial line's", len(both)
                )
                last = last.combine_first(before)
            cells[column.name] = last
    repairs.add("measurements followed by a later one in the same hour", dropped)
    wide = pd.DataFrame(cells)
    hours = wide.index.get_level_values("hour").to_series(index=wide.index).groupby("user")
    first, last_hour = hours.min(), hours.max()
    length = (last_hour - first + 1).to_numpy()
    user = np.repeat(first.index.to_numpy(), length)
    step = np.concatenate([np.arange(count) for count in length])
    hour = np.repeat(first.to_numpy(), length) + step
    grid = pd.MultiIndex.from_arrays([user, hour], names=["user", "hour"])
    frame = wide.reindex(grid).reset_index(drop=True)
    repairs.add("hours without any measurement inside a table, all missing", len(grid) - len(wide))
    return frame.assign(user=user, time=step.astype(np.float64))
