"""From values to bin numbers and back, on public bounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from panelbench.schema import ColumnKind

if TYPE_CHECKING:
    from panelbench.schema import Column

UNITS_PER_DAY = {"second": 86_400.0, "minute": 1_440.0, "hour": 24.0, "day": 1.0}
HOURS = 24
GAPS = 16
SHORTEST_GAP_DAYS = 1 / 1_440
LONGEST_GAP_DAYS = 365.0


class Coder(Protocol):
    """A fixed public code for the values of one quantity.

    Attributes:
        size: Number of bins.
    """

    @property
    def size(self) -> int:
        """Number of bins."""
        ...

    def encode(self, values: np.ndarray) -> np.ndarray:
        """Bin numbers from 0 to size - 1."""
        ...

    def decode(self, codes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """A value in each bin, at random where a bin holds several."""
        ...


@dataclass(frozen=True, kw_only=True)
class Bins:
    """Numeric values in adjacent bins; values beyond the outer edges go to the outer bins.

    Attributes:
        edges: Increasing, shape (bins + 1,).
        whole: Whether values are whole numbers; edges then lie halfway between whole numbers.
        nullable: Whether there is one more bin, the last, for missing values.
    """

    edges: np.ndarray
    whole: bool = False
    nullable: bool = False

    @property
    def size(self) -> int:
        """Number of bins, with the one for missing values."""
        return len(self.edges) - 1 + self.nullable

    def encode(self, values: np.ndarray) -> np.ndarray:
        """Bin numbers; missing values, where allowed, get the last."""
        codes = np.searchsorted(self.edges, values, side="right") - 1
        codes = np.clip(codes, 0, len(self.edges) - 2)
        return np.where(np.isnan(values), self.size - 1, codes)

    def decode(self, codes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Uniform inside the bin."""
        inner = np.minimum(codes, len(self.edges) - 2)
        low, high = self.edges[inner], self.edges[inner + 1]
        share = rng.random(codes.shape)
        if self.whole:
            values = np.floor(low + 0.5 + share * (high - low))
            values = np.clip(values, np.ceil(low), np.floor(high))
        else:
            values = low + share * (high - low)
        return np.where(codes > inner, np.nan, values)


@dataclass(frozen=True, kw_only=True)
class Categories:
    """Category codes as pandas has them, -1 for missing, which becomes the last bin.

    Attributes:
        count: Number of categories.
        nullable: Whether there is a bin for missing values.
    """

    count: int
    nullable: bool = False

    @property
    def size(self) -> int:
        """Number of bins, with the one for missing values."""
        return self.count + self.nullable

    def encode(self, values: np.ndarray) -> np.ndarray:
        """Bin numbers from category codes."""
        return np.where(values < 0, self.size - 1, values).astype(np.int64)

    def decode(self, codes: np.ndarray, rng: np.random.Generator) -> np.ndarray:  # noqa: ARG002 - one value a bin
        """Category codes, -1 for missing."""
        return np.where(codes >= self.count, -1, codes)


@dataclass(frozen=True, kw_only=True)
class HourOfDay:
    """Times by the hour of the day; decoded times lie in the first day.

    Attributes:
        per_day: Time units in a day.
    """

    per_day: float
    size: int = HOURS

    def encode(self, values: np.ndarray) -> np.ndarray:
        """Hours from 0 to 23."""
        hours = np.floor(np.mod(values, self.per_day) * (HOURS / self.per_day))
        return np.asarray(np.clip(hours, 0, HOURS - 1), dtype=np.int64)

    def decode(self, codes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Uniform inside the hour."""
        times: np.ndarray = (codes + rng.random(codes.shape)) * (self.per_day / HOURS)
        return times


@dataclass(frozen=True, kw_only=True)
class Gaps:
    """Times since the row before, in bins with log-spaced edges from a minute to a year.

    Attributes:
        per_day: Time units in a day.
    """

    per_day: float
    size: int = GAPS

    @property
    def _edges(self) -> np.ndarray:
        inner = np.geomspace(SHORTEST_GAP_DAYS, LONGEST_GAP_DAYS, GAPS)
        return np.concatenate([[0.0], inner]) * self.per_day

    def encode(self, values: np.ndarray) -> np.ndarray:
        """Bin numbers; the first bin holds gaps under a minute, the last all above its edge."""
        return np.clip(np.searchsorted(self._edges, values, side="right") - 1, 0, GAPS - 1)

    def decode(self, codes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Uniform inside the bin, never 0."""
        low, high = self._edges[codes], self._edges[codes + 1]
        gaps: np.ndarray = high - rng.random(codes.shape) * (high - low)
        return gaps


def numeric_edges(lower: float, upper: float, *, bins: int, whole: bool) -> np.ndarray:
    """Equal-width edges; for whole numbers halfway between them, each bin with at least one.

    >>> numeric_edges(0, 4, bins=32, whole=True)
    array([-0.5,  0.5,  1.5,  2.5,  3.5,  4.5])
    """
    if not whole:
        return np.linspace(lower, upper, bins + 1)
    low = np.ceil(lower)
    high = max(low, np.floor(upper))
    return np.unique(np.round(np.linspace(low, high + 1, bins + 1))) - 0.5


def column_coder(column: Column, *, lower: float, upper: float, bins: int) -> Coder:
    """The coder of a column, numeric ones between `lower` and `upper`."""
    if column.kind is ColumnKind.CATEGORICAL:
        return Categories(count=len(column.categories), nullable=column.nullable)
    return Bins(
        edges=numeric_edges(lower, upper, bins=bins, whole=column.integer),
        whole=column.integer,
        nullable=column.nullable,
    )
