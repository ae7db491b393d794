"""How far the hours of the day at which rows happen are from the real ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from panelbench import USER_TABLES, Metric, Scale, Score
from panelbench_metrics.samples import floor_sample, tables_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pandas as pd

    from panelbench import Dataset, Release

HOURS = 24
_UNIT = "minute"


@dataclass(frozen=True, kw_only=True)
class HourOfDayW1(Metric):
    """Wasserstein-1 distance between the hours of the day of all rows, in hours (path.md 3.7).

    Times count minutes from the midnight before a user's first row; the hour of a row is the
    whole number 0 to 23. The reference is the test users. Schemas whose times are regular or in
    another unit say nothing about the clock and get no score.

    - `linear`: hours on the line from 0 to 23 (Rosenblatt et al. 2026, arXiv:2602.02766).
    - `circular`: hours on the circle, where 23 is next to 0.
    """

    name: ClassVar[str] = "hour-of-day-w1"
    kind: ClassVar[str] = USER_TABLES
    components: ClassVar[Mapping[str, Scale]] = {
        "linear": Scale(upper=HOURS - 1.0),
        "circular": Scale(upper=HOURS / 2),
    }

    def score(
        self, reference: Dataset, release: Release, *, rng: np.random.Generator
    ) -> Iterator[Score]:
        """Compare the release with the test users."""
        tables, synthetic = tables_of(reference, release)
        if tables.schema.regular or tables.schema.time_unit != _UNIT:
            return
        real = _shares(tables.test)
        sample = floor_sample(tables, synthetic, rng)
        values = _distances(real, _shares(synthetic.frame))
        floors = None if sample is None else _distances(real, _shares(sample))
        for component, value in values.items():
            yield Score(
                component=component,
                value=value,
                unit="hours",
                floor=None if floors is None else floors[component],
            )


def _shares(frame: pd.DataFrame) -> np.ndarray:
    hours = np.mod(np.floor(frame["time"].to_numpy() / 60), HOURS).astype(np.int64)
    shares: np.ndarray = np.bincount(hours, minlength=HOURS) / len(hours)
    return shares


def _distances(a: np.ndarray, b: np.ndarray) -> dict[str, float]:
    """Both distances of two distributions over hours; around the circle mass may go either way.

    The best constant flow through midnight is the median of the flows between neighboring hours
    (Delon, Salomon and Sobolevski 2010).
    """
    flow = np.cumsum(a - b)
    linear = min(float(np.abs(flow[:-1]).sum()), HOURS - 1.0)
    circular = min(float(np.abs(flow - np.median(flow)).sum()), HOURS / 2)
    return {"linear": linear, "circular": circular}
