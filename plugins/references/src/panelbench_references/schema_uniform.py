"""What the public schema alone gives: the floor that private releases must beat."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pandas as pd

from panelbench import (
    USER_TABLES,
    ColumnKind,
    Established,
    Guarantee,
    Mechanism,
    Role,
    SyntheticTables,
)

if TYPE_CHECKING:
    from panelbench import Budget, Column, Dataset, Schema


@dataclass(frozen=True, kw_only=True)
class SchemaUniform(Mechanism):
    """Independent uniform cells; no row of the data is read.

    Lengths are uniform over the schema's `min_rows` to `max_rows`, numbers over the bounds (whole
    numbers where the column has them), categories over the categories. Nothing is missing. Times
    are 0, 1, 2, ... in the schema's unit, since the schema says nothing about irregular ones.

    Formal guarantee:
        The release is a function of the schema and of fresh randomness, so it is the same
        distribution on any two datasets: 0-DP under every relation and for every unit, the ledger
        empty. Public: the schema.

    Attributes:
        tables: How many tables to release.
    """

    name: ClassVar[str] = "schema-uniform"
    kind: ClassVar[str] = USER_TABLES
    role: ClassVar[Role] = Role.BASELINE

    tables: int = 1000

    def __post_init__(self) -> None:
        if self.tables < 1:
            raise ValueError(f"tables must be at least 1, got {self.tables}.")

    def supports(self, schema: Schema, budget: Budget) -> str | None:  # noqa: ARG002 - spends none
        """Needs both bounds of every numeric column, and a whole number between integer ones."""
        for column in schema.numeric:
            bounds = _bounds(column)
            if bounds is None:
                return f"needs public bounds, and column '{column.name}' lacks them"
            if bounds[0] > bounds[1]:
                return f"column '{column.name}' has no whole number between its bounds"
        return None

    def release(
        self, dataset: Dataset, budget: Budget, *, rng: np.random.Generator
    ) -> SyntheticTables:
        """Draw the tables."""
        schema = dataset.schema
        lengths = rng.integers(schema.min_rows, schema.max_rows, size=self.tables, endpoint=True)
        rows = int(lengths.sum())
        starts = np.repeat(np.cumsum(lengths) - lengths, lengths)
        frame = pd.DataFrame(
            {
                "user": np.repeat(np.arange(self.tables), lengths),
                "time": (np.arange(rows) - starts).astype(np.float64),
                **{column.name: _uniform(column, rows, rng) for column in schema.columns},
            }
        )
        return SyntheticTables(
            schema=schema,
            frame=frame,
            guarantee=Guarantee(
                established=Established.SETTLED,
                unit=schema.unit,
                relation=budget.relation,
            ),
            info={"tables": self.tables},
        )


def _bounds(column: Column) -> tuple[float, float] | None:
    """Smallest and largest value to draw, None where a bound is missing."""
    if column.lower is None or column.upper is None:
        return None
    if column.integer:
        return math.ceil(column.lower), math.floor(column.upper)
    return column.lower, column.upper


def _uniform(column: Column, rows: int, rng: np.random.Generator) -> np.ndarray:
    if column.kind is ColumnKind.CATEGORICAL:
        return rng.choice(np.array(column.categories, dtype=object), size=rows)
    bounds = _bounds(column)
    if bounds is None:
        raise ValueError(f"Column '{column.name}' has no bounds; `supports` says so.")
    if column.integer:
        return rng.integers(int(bounds[0]), int(bounds[1]), size=rows, endpoint=True).astype(float)
    return rng.uniform(*bounds, size=rows)
