"""The public schema of emergency department vital signs, shared by the loader and the look-alike.

The quantities are those of the MIMIC-IV-ED table `vitalsign`. Bounds are physiological: outside
them a value is a typing or sensor error, whatever the patient.
"""

from __future__ import annotations

from panelbench import Column, ColumnKind, PrivacyUnit, Schema

RHYTHMS = (
    "Sinus Rhythm",
    "Sinus Tachycardia",
    "Sinus Bradycardia",
    "Atrial Fibrillation",
    "Atrial Flutter",
    "Paced Rhythm",
    "Other",
)
OTHER_RHYTHM = "Other"


def _vital(name: str, unit: str, lower: float, upper: float, *, integer: bool = True) -> Column:
    return Column(name=name, unit=unit, lower=lower, upper=upper, integer=integer, nullable=True)


COLUMNS = (
    _vital("temperature", "degF", 80.0, 115.0, integer=False),
    _vital("heartrate", "1/min", 10.0, 300.0),
    _vital("resprate", "1/min", 1.0, 80.0),
    _vital("o2sat", "%", 30.0, 100.0),
    _vital("sbp", "mmHg", 30.0, 300.0),
    _vital("dbp", "mmHg", 10.0, 200.0),
    Column(name="rhythm", kind=ColumnKind.CATEGORICAL, categories=RHYTHMS, nullable=True),
    _vital("pain", "0 to 10", 0.0, 10.0, integer=False),
)


def schema(*, min_rows: int, max_rows: int, nominal_users: int, title: str) -> Schema:
    """User tables of vital signs at irregular times, in minutes."""
    return Schema(
        columns=COLUMNS,
        unit=PrivacyUnit.USER,
        min_rows=min_rows,
        max_rows=max_rows,
        time_unit="minute",
        regular=False,
        nominal_users=nominal_users,
        title=title,
    )
