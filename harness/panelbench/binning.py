"""The first rows of every user as bin numbers, and back: what mechanisms over wide tables share."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from panelbench.bounds import (
    Clip,
    noisy_bounds,
    one_value_each,
    private_bounds,
    public_bounds,
)
from panelbench.coders import UNITS_PER_DAY, Coder, Gaps, HourOfDay, column_coder
from panelbench.flatten import Wide
from panelbench.privacy import GaussianEvent, Notion
from panelbench.schema import ColumnKind

if TYPE_CHECKING:
    from panelbench.privacy import Budget
    from panelbench.schema import Schema


@dataclass(frozen=True, kw_only=True)
class Binning:
    """A fixed code for wide tables: one coder for each quantity and step.

    Quantities are the columns, and "time" where times are irregular.

    Attributes:
        schema: The schema of the tables.
        coders: For each quantity, the coder of each step.
        pad: Whether each step has one more bin, the last, for "no row".
    """

    schema: Schema
    coders: dict[str, tuple[Coder, ...]]
    pad: bool

    @classmethod
    def of(
        cls,
        schema: Schema,
        *,
        steps: int,
        bounds: dict[str, tuple[float, float]],
        bins: int,
        pad: bool,
    ) -> Binning:
        """Equal-width bins between given bounds; times by hour of day, then log-spaced gaps."""
        coders: dict[str, tuple[Coder, ...]] = {}
        for column in schema.columns:
            lower, upper = bounds.get(column.name, (0.0, 1.0))
            coders[column.name] = (
                column_coder(column, lower=lower, upper=upper, bins=bins),
            ) * steps
        if not schema.regular:
            per_day = UNITS_PER_DAY[schema.time_unit]
            later: Coder = Gaps(per_day=per_day)
            coders["time"] = (HourOfDay(per_day=per_day), *[later] * (steps - 1))
        return cls(schema=schema, coders=coders, pad=pad)

    def sizes(self, name: str) -> tuple[int, ...]:
        """Bins of a quantity at each step, the one for "no row" included."""
        return tuple(coder.size + self.pad for coder in self.coders[name])

    def encode(self, wide: Wide, name: str) -> np.ndarray:
        """Bin numbers of one quantity, shape (users, steps)."""
        coders = self.coders[name]
        codes = np.stack([c.encode(wide.cells[name][:, k]) for k, c in enumerate(coders)], axis=1)
        if self.pad:
            codes = np.where(wide.present, codes, np.array(self.sizes(name)) - 1)
        return codes.astype(np.int64)

    def decode(
        self, codes: dict[str, np.ndarray], lengths: np.ndarray, rng: np.random.Generator
    ) -> Wide:
        """A wide table with a value drawn from each bin; beyond `lengths` it is meaningless."""
        cells = {}
        for name, coders in self.coders.items():
            inside = np.minimum(codes[name], np.array([coder.size for coder in coders]) - 1)
            cells[name] = np.stack(
                [coder.decode(inside[:, k], rng) for k, coder in enumerate(coders)], axis=1
            )
        for column in self.schema.columns:
            if column.kind is ColumnKind.CATEGORICAL:
                cells[column.name] = cells[column.name].astype(np.int64)
        return Wide(cells=cells, lengths=lengths)


def bounds_of(
    wide: Wide,
    schema: Schema,
    *,
    clip: str,
    mu: float,
    l2_sensitivity: float,
    rng: np.random.Generator,
) -> tuple[dict[str, tuple[float, float]], tuple[GaussianEvent, ...]]:
    """Outer edges of the bins of numeric columns, and what finding them is charged.

    Args:
        wide: The private values.
        schema: Their schema.
        clip: A value of `Clip`.
        mu: Gaussian-DP parameter that may be spent where `clip` is "dp".
        l2_sensitivity: That of a histogram to which every user adds at most one count.
        rng: The source of randomness.
    """
    columns = schema.numeric
    if clip == Clip.PAPER:
        return {c.name: private_bounds(wide, c) for c in columns}, ()
    if clip == Clip.BOUNDS or not columns:
        return {c.name: public_bounds(c) for c in columns}, ()
    stddev = l2_sensitivity * math.sqrt(len(columns)) / mu
    found = {}
    for column in columns:
        histogram = one_value_each(wide, column, rng)
        histogram += rng.normal(0.0, stddev, histogram.shape)
        found[column.name] = noisy_bounds(histogram, stddev, column)
    return found, (GaussianEvent(stddev=stddev, l2_sensitivity=l2_sensitivity, count=len(columns)),)


def unfit(schema: Schema, budget: Budget, *, clip: str) -> str | None:
    """None, or why tables of this schema cannot be binned within this budget."""
    if budget.notion is Notion.UNLIMITED:
        return "needs a limited budget"
    if not schema.regular and schema.time_unit not in UNITS_PER_DAY:
        return f"needs times in one of {sorted(UNITS_PER_DAY)}, got '{schema.time_unit}'"
    missing = [c.name for c in schema.numeric if c.lower is None or c.upper is None]
    return f"needs public bounds for {missing}" if missing and clip != Clip.PAPER else None
