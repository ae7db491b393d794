"""Vital signs of emergency department patients, from MIMIC-IV-ED."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pandas as pd

from panelbench import USER_TABLES, ColumnKind, DataFile, DatasetSource, UserTables
from panelbench_datasets import vitals
from panelbench_datasets.files import (
    Repairs,
    coded,
    distinct,
    identifiers,
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
    check_lengths,
    check_test_share,
    clock_minutes,
    split_users,
    within_rows,
)

if TYPE_CHECKING:
    from pandas.api.extensions import ExtensionArray

    from panelbench import Schema

DEMO = "mimic-iv-ed-demo/vitalsign.csv.gz"
DEMO_SHA256 = "89967d8b9dd139d540e9d08270bb6282dd2df0eb7111d38bfe2a79c0b291ab78"
# The demo is titled "100 patients"; the publication of PATH counts about 10^5 users.
DEMO_USERS, FULL_USERS = 100, 100_000
CELSIUS = (25.0, 45.0)
FORMATS = ("%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M")
SPELLINGS = {
    "sinus rhythm": "Sinus Rhythm",
    "normal sinus rhythm": "Sinus Rhythm",
    "normal sinus": "Sinus Rhythm",
    "sr": "Sinus Rhythm",
    "nsr": "Sinus Rhythm",
    "sinus": "Sinus Rhythm",
    "sinus tachycardia": "Sinus Tachycardia",
    "sinus tach": "Sinus Tachycardia",
    "st": "Sinus Tachycardia",
    "sinus bradycardia": "Sinus Bradycardia",
    "sinus brady": "Sinus Bradycardia",
    "sb": "Sinus Bradycardia",
    "atrial fibrillation": "Atrial Fibrillation",
    "afib": "Atrial Fibrillation",
    "a fib": "Atrial Fibrillation",
    "a-fib": "Atrial Fibrillation",
    "af": "Atrial Fibrillation",
    "atrial flutter": "Atrial Flutter",
    "aflutter": "Atrial Flutter",
    "a flutter": "Atrial Flutter",
    "paced rhythm": "Paced Rhythm",
    "paced": "Paced Rhythm",
}


def fahrenheit(values: np.ndarray, repairs: Repairs) -> np.ndarray:
    """Temperatures in degrees Fahrenheit; those that can only be Celsius are converted, counted."""
    celsius = (values >= CELSIUS[0]) & (values <= CELSIUS[1])
    repairs.add("temperature: Celsius converted to Fahrenheit", celsius.sum())
    return np.where(celsius, np.round(values * 1.8 + 32, 1), values)


def pain_scores(values: pd.Series, repairs: Repairs) -> np.ndarray:
    """The number in front of a pain entry such as "8", "8.5" or "8/10"; NaN for other text."""
    words, codes = distinct(values)
    text = words.astype(str).str.strip()
    scores = text.str.extract(r"^(\d+(?:\.\d+)?)(?:\s*/\s*10)?$", expand=False)
    result: np.ndarray = pd.to_numeric(scores, errors="coerce").to_numpy(dtype=np.float64)
    free_text = np.isnan(result) & ~is_missing(words)
    repairs.add("pain: free text, now missing", free_text[codes].sum())
    rows: np.ndarray = result[codes]
    return rows


def rhythms(values: pd.Series, repairs: Repairs) -> ExtensionArray:
    """Rhythms in the public vocabulary; unknown spellings become "Other" and are counted."""
    words, codes = distinct(values)
    known = words.astype(str).str.strip().str.lower().map(SPELLINGS)
    unknown = known.isna().to_numpy() & ~is_missing(words)
    repairs.add(f"rhythm: unknown spelling, now {vitals.OTHER_RHYTHM}", unknown[codes].sum())
    known = known.astype(object).mask(unknown, vitals.OTHER_RHYTHM)
    return coded(known, codes, vitals.RHYTHMS)


@dataclass(frozen=True, kw_only=True)
class MimicIvEd(DatasetSource):
    """Vital signs of MIMIC-IV-ED: one table a patient (subject_id), all stays joined in time order.

    The nine columns of Rosenblatt et al. (arXiv:2602.02766): charttime becomes the time, in
    minutes since the midnight before the patient's first row; temperature (degrees Fahrenheit),
    heartrate, resprate, o2sat, sbp, dbp, rhythm and pain are the schema's columns. The default is
    the open demo; name the credentialed release's file by `file`.

    Repairs, all counted: identical rows; rows out of time order; rows of one patient at the same
    minute are merged, the last value of each column wins; Celsius; pain in words; spellings of the
    rhythm; values outside the physiological bounds become missing.

    Attributes:
        file: Path of `vitalsign.csv` or `vitalsign.csv.gz` below the data directory.
        min_rows: Patients with fewer rows are left out.
        max_rows: Rows after a patient's first max_rows are left out.
        test_share: Share of patients in test.
    """

    name: ClassVar[str] = "mimic-iv-ed"
    kind: ClassVar[str] = USER_TABLES

    file: str = DEMO
    min_rows: int = MIN_ROWS
    max_rows: int = MAX_ROWS
    test_share: float = 0.1

    def __post_init__(self) -> None:
        check_lengths(self.min_rows, self.max_rows)
        check_test_share(self.test_share)

    def files(self) -> tuple[DataFile, ...]:
        """The vital signs table."""
        return (
            DataFile(
                path=self.file,
                sha256=DEMO_SHA256 if self.file == DEMO else None,
                instructions=(
                    "Take ed/vitalsign.csv.gz from PhysioNet, 'MIMIC-IV-ED Demo' 2.2 (open) or "
                    "'MIMIC-IV-ED' 2.2 (credentialed)."
                ),
            ),
        )

    def schema(self) -> Schema:
        """The public schema."""
        return vitals.schema(
            min_rows=self.min_rows,
            max_rows=self.max_rows,
            nominal_users=DEMO_USERS if self.file == DEMO else FULL_USERS,
            title="Vital signs in the emergency department (MIMIC-IV-ED)",
        )

    def load(self, *, rng: np.random.Generator) -> UserTables:
        """Read, repair, filter and split."""
        (wanted,) = self.files()
        names = [column.name for column in vitals.COLUMNS]
        raw = read_table(locate(wanted), ["subject_id", "charttime", *names], file=self.file)
        repairs = Repairs()
        raw = without_duplicates(raw, list(raw.columns), repairs)
        frame = pd.DataFrame(
            {
                "user": identifiers(raw, "subject_id", file=self.file),
                "moment": times(raw, "charttime", formats=FORMATS, file=self.file),
            },
            index=raw.index,
        )
        for column in vitals.COLUMNS:
            if column.kind is ColumnKind.CATEGORICAL:
                frame[column.name] = rhythms(raw[column.name], repairs)
                continue
            if column.name == "pain":
                values = pain_scores(raw["pain"], repairs)
            else:
                values = numbers(raw, column.name, file=self.file)
            if column.name == "temperature":
                values = fahrenheit(values, repairs)
            frame[column.name] = in_range(values, column=column, repairs=repairs)
        frame = in_time_order(frame, "user", "moment", repairs)
        rows = len(frame)
        frame = frame.groupby(["user", "moment"], as_index=False).last()
        repairs.add("rows of one patient at the same time, merged", rows - len(frame))
        frame["time"] = clock_minutes(frame, "moment")
        schema = self.schema()
        frame = within_rows(frame.drop(columns="moment"), schema, repairs)
        train, test = split_users(frame, test_share=self.test_share, rng=rng)
        return UserTables(schema=schema, train=train, test=test, repairs=repairs.counts)
