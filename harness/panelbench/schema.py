"""The public metadata of a dataset: columns with their domains, and what is fixed about tables."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Self

from panelbench.errors import DataError
from panelbench.privacy import PrivacyUnit

USER = "user"
TIME = "time"
USER_TABLES = "user-tables"
SENSOR_STREAMS = "sensor-streams"
DATA_DIRECTORY = "PANELBENCH_DATA"
"""The environment variable that names the folder of data files."""


class ColumnKind(StrEnum):
    """How the values of a column are to be read."""

    NUMERIC = "numeric"
    CATEGORICAL = "categorical"


@dataclass(frozen=True, kw_only=True)
class Column:
    """One measured quantity with its public domain.

    Bounds and categories come from the domain (a standard, a physical limit, a code book), never
    from the smallest and largest value in a private file.

    Attributes:
        name: Name in frames and tables.
        kind: Numeric or categorical.
        unit: Unit in words, for example "mmHg"; empty for none.
        lower: Smallest valid value, numeric columns only.
        upper: Largest valid value, numeric columns only.
        categories: All valid values in a fixed order, categorical columns only.
        integer: Whether numeric values are whole numbers.
        nullable: Whether a value may be missing (NaN).
        description: One sentence for people.
    """

    name: str
    kind: ColumnKind = ColumnKind.NUMERIC
    unit: str = ""
    lower: float | None = None
    upper: float | None = None
    categories: tuple[str, ...] = ()
    integer: bool = False
    nullable: bool = False
    description: str = ""

    def __post_init__(self) -> None:
        if not self.name or self.name in (USER, TIME):
            raise DataError(f"A column needs a name other than '{USER}' or '{TIME}'.")
        if self.kind is ColumnKind.CATEGORICAL:
            if len(set(self.categories)) != len(self.categories) or not self.categories:
                raise DataError(f"Column '{self.name}' needs distinct categories, and some.")
            if self.lower is not None or self.upper is not None:
                raise DataError(f"Column '{self.name}' is categorical and can have no bounds.")
        else:
            if self.categories:
                raise DataError(f"Column '{self.name}' is numeric and can have no categories.")
            bounds = (self.lower, self.upper)
            if any(b is not None and not math.isfinite(b) for b in bounds):
                raise DataError(f"The bounds of column '{self.name}' must be finite.")
            if self.lower is not None and self.upper is not None and self.lower >= self.upper:
                raise DataError(f"Column '{self.name}' needs lower < upper, got {bounds}.")


@dataclass(frozen=True, kw_only=True)
class Schema:
    """Public metadata of a dataset; everything here may be seen by anyone.

    Attributes:
        columns: The measured quantities, in order.
        unit: The privacy unit.
        min_rows: Fewest rows a unit can have (user tables) or steps in an episode (streams).
        max_rows: Most rows a unit can have, or steps in an episode; the horizon.
        time_unit: Unit of the time column, for example "step", "hour" or "minute".
        regular: True where a unit's times are always 0, 1, 2, ...; then times hold no information.
        nominal_users: A public order of magnitude of the number of users (from a publication, not
            from the file), used for "n^-1.1" deltas only; None where there is none.
        state: The quantity to be estimated, for sensor streams.
        title: One line for people.
    """

    columns: tuple[Column, ...]
    unit: PrivacyUnit
    min_rows: int
    max_rows: int
    time_unit: str = "step"
    regular: bool = True
    nominal_users: int | None = None
    state: Column | None = None
    title: str = ""

    def __post_init__(self) -> None:
        names = [column.name for column in self.columns]
        if not names or len(set(names)) != len(names):
            raise DataError(f"A schema needs columns with distinct names, got {names}.")
        if not 1 <= self.min_rows <= self.max_rows:
            raise DataError(
                f"A schema needs 1 <= min_rows <= max_rows, got {self.min_rows}, {self.max_rows}."
            )

    def __getitem__(self, name: str) -> Column:
        """The column called `name`."""
        for column in self.columns:
            if column.name == name:
                return column
        raise DataError(f"No column '{name}'; there are {[c.name for c in self.columns]}.")

    @property
    def numeric(self) -> tuple[Column, ...]:
        """The numeric columns, in order."""
        return tuple(c for c in self.columns if c.kind is ColumnKind.NUMERIC)

    @property
    def categorical(self) -> tuple[Column, ...]:
        """The categorical columns, in order."""
        return tuple(c for c in self.columns if c.kind is ColumnKind.CATEGORICAL)

    def to_json(self) -> dict[str, Any]:
        """A JSON-able description."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        """The inverse of `to_json`."""

        def column(raw: dict[str, Any]) -> Column:
            return Column(
                **{
                    **raw,
                    "kind": ColumnKind(raw["kind"]),
                    "categories": tuple(raw["categories"]),
                }
            )

        return cls(
            **{
                **data,
                "columns": tuple(column(raw) for raw in data["columns"]),
                "unit": PrivacyUnit(data["unit"]),
                "state": None if data["state"] is None else column(data["state"]),
            }
        )
