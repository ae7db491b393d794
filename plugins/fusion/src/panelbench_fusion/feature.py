"""What one sensor contributes at one step: a vector in the unit ball, and its sum over sensors."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np

from panelbench import ColumnKind, NeighboringRelation

if TYPE_CHECKING:
    from panelbench import Schema

BAND = (0.05, 0.95)
"""Quantiles of training reports between which a value is scaled."""


def unfit(schema: Schema, values: tuple[str, ...]) -> str | None:
    """None, or why the columns `values` of `schema` cannot make a feature."""
    bounded = [c.name for c in schema.numeric if c.lower is not None and c.upper is not None]
    missing = [name for name in values if name not in bounded]
    if missing:
        return (
            f"needs numeric columns {list(values)} with public bounds, the schema has "
            f"{bounded or 'none'}; set `values`"
        )
    return None


@dataclass(frozen=True, kw_only=True)
class Feature:
    """f = (w_c, w_v s_1, w_v s_2, ...), s the value of a column, scaled; f(absent) = 0.

    Values are scaled to 0..1, or to -1..1 where the feature is centred: then a value counts by its
    distance from the middle, which doubles what one report can tell at the same norm, but also how
    far two present reports can lie apart, so it pays under add-or-remove-one only.

    w_c^2 + m w_v^2 = 1 with m value columns, so |f| <= 1 by construction. The feature of a sensor
    depends on that sensor's report alone: values beyond the public bounds are clipped, a report
    with a value that is not finite, or with a numeric value that is used in no coordinate beyond
    its public bounds (a position off the segment), counts as absent.

    Attributes:
        count_weight: w_c, in (0, 1].
        values: Indices of the value columns.
        lower: Public lower bound of every column, shape (columns,); for a value column that of
            the band it is scaled over.
        upper: Public upper bound of every column, shape (columns,), likewise.
        centred: Scale values to -1..1.
    """

    count_weight: float
    values: tuple[int, ...]
    lower: np.ndarray
    upper: np.ndarray
    centred: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.count_weight <= 1:
            raise ValueError(f"count_weight must lie in (0, 1], got {self.count_weight}.")
        if not self.values and self.count_weight != 1:
            raise ValueError("Without value columns count_weight must be 1.")

    @classmethod
    def of(cls, schema: Schema, *, count_weight: float, values: tuple[str, ...]) -> Self:
        """The feature over the schema's columns called `values`."""
        reason = unfit(schema, values)
        if reason is not None:
            raise ValueError(f"The feature {reason}.")
        names = [column.name for column in schema.columns]
        numeric = [column.kind is ColumnKind.NUMERIC for column in schema.columns]
        bounds = [
            (
                -math.inf if column.lower is None or not number else column.lower,
                math.inf if column.upper is None or not number else column.upper,
            )
            for column, number in zip(schema.columns, numeric, strict=True)
        ]
        return cls(
            count_weight=count_weight if values else 1.0,
            values=tuple(names.index(name) for name in values),
            lower=np.array([low for low, _ in bounds]),
            upper=np.array([high for _, high in bounds]),
        )

    def narrowed(self, observations: np.ndarray, present: np.ndarray) -> Self:
        """With values scaled over the band that they mostly lie in, not over all that is possible.

        A value moves the sum by as much as before, at the same cost, while common values spread
        over more of 0..1; those beyond the band are clipped. The band runs between two quantiles
        of reports whose people are not protected.

        Args:
            observations: Reports of training windows, shape (..., sensors, columns).
            present: Shape (..., sensors).
        """
        lower, upper = self.lower.copy(), self.upper.copy()
        for column in self.values:
            seen = observations[..., column][present]
            seen = seen[np.isfinite(seen)]
            if len(seen):
                low, high = np.clip(np.quantile(seen, BAND), lower[column], upper[column])
                if high > low:
                    lower[column], upper[column] = low, high
        return dataclasses.replace(self, lower=lower, upper=upper)

    @property
    def size(self) -> int:
        """Number of coordinates."""
        return 1 + len(self.values)

    @property
    def value_weight(self) -> float:
        """w_v, 0 without value columns; rounded down, so that no |f| exceeds 1."""
        if not self.values:
            return 0.0
        return math.sqrt(max(0.0, 1 - self.count_weight**2) / len(self.values)) * (1 - 2.0**-48)

    def l2_sensitivity(self, relation: NeighboringRelation) -> float:
        """Largest L2 norm by which one sensor changes a step's sum.

        Add-or-remove: |f| <= 1. Replace-one: between two present reports only the value part
        moves, by at most w_v sqrt(m) < 1, or twice that where values are centred; between present
        and absent |f| <= 1, and the larger of the two counts. So both are 1 where values are not
        centred: the coordinates are not negative and the first is constant, which saves the factor
        sqrt(2) of a general feature with coordinates >= 0.
        """
        width = 2.0 if self.centred else 1.0
        among_present = width * self.value_weight * math.sqrt(len(self.values))
        if relation is NeighboringRelation.REPLACE_ONE:
            return max(1.0, among_present)
        return 1.0

    @property
    def weights(self) -> np.ndarray:
        """(w_c, w_v, w_v, ...), shape (size,)."""
        return np.array([self.count_weight] + [self.value_weight] * len(self.values))

    def counted(self, observations: np.ndarray, present: np.ndarray) -> np.ndarray:
        """Which reports count; shapes as in `unit_contributions`."""
        used = np.zeros(len(self.lower), dtype=bool)
        used[list(self.values)] = True
        inside = (observations >= self.lower) & (observations <= self.upper)
        usable = (np.isfinite(observations) & (inside | used)).all(axis=-1)
        counted: np.ndarray = present & usable
        return counted

    def unit_contributions(
        self, observations: np.ndarray, present: np.ndarray, *, single_visit: bool = False
    ) -> np.ndarray:
        """What every sensor contributes before weighing: (1, s_1, s_2, ...).

        Args:
            observations: Shape (..., sensors, columns).
            present: Shape (..., sensors).
            single_visit: Enforce that a sensor counts on one run of consecutive steps: whatever it
                reports after its first absence is ignored. Needs shape (..., steps, sensors).

        Returns:
            Shape (..., sensors, size), exactly 0 where absent.
        """
        finite = np.isfinite(observations)
        counted = self.counted(observations, present)
        if single_visit:
            counted = first_visit(counted)
        f = np.zeros((*present.shape, self.size))
        f[..., 0] = 1.0
        for place, column in enumerate(self.values, start=1):
            low, high = self.lower[column], self.upper[column]
            value = np.where(finite[..., column], observations[..., column], low)
            scaled = (value - low) / (high - low)
            scaled = np.clip(scaled, 0.0, 1.0)
            f[..., place] = 2 * scaled - 1 if self.centred else scaled
        return np.where(counted[..., None], f, 0.0)

    def contributions(self, observations: np.ndarray, present: np.ndarray) -> np.ndarray:
        """What every sensor contributes; arguments and shape as in `unit_contributions`."""
        return np.asarray(self.unit_contributions(observations, present) * self.weights)

    def sums(self, observations: np.ndarray, present: np.ndarray) -> np.ndarray:
        """S, the sum of f over sensors: a sum, never a mean. Shape (..., size)."""
        total: np.ndarray = self.contributions(observations, present).sum(axis=-2)
        return total

    def unit_sums(
        self, observations: np.ndarray, present: np.ndarray, *, single_visit: bool = False
    ) -> np.ndarray:
        """The sum over sensors of `unit_contributions`. Shape (..., size)."""
        f = self.unit_contributions(observations, present, single_visit=single_visit)
        total: np.ndarray = f.sum(axis=-2)
        return total


def first_visit(counted: np.ndarray) -> np.ndarray:
    """Only the first run of consecutive steps on which each sensor counts.

    Args:
        counted: Shape (..., steps, sensors).
    """
    before = np.zeros_like(counted)
    before[..., 1:, :] = np.logical_or.accumulate(counted, axis=-2)[..., :-1, :]
    over = np.logical_or.accumulate(before & ~counted, axis=-2)
    return counted & ~over
