"""How far the lengths of tables are from the real ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from panelbench import USER_TABLES, Metric, Scale, Score
from panelbench_metrics.samples import floor_sample, tables_of, wasserstein1

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import numpy as np
    import pandas as pd

    from panelbench import Dataset, Release


@dataclass(frozen=True, kw_only=True)
class LengthW1(Metric):
    """Wasserstein-1 distance between the numbers of rows of the tables, in rows.

    The reference is the test users.
    """

    name: ClassVar[str] = "length-w1"
    kind: ClassVar[str] = USER_TABLES
    components: ClassVar[Mapping[str, Scale]] = {"length": Scale()}

    def score(
        self, reference: Dataset, release: Release, *, rng: np.random.Generator
    ) -> Iterator[Score]:
        """Compare the release with the test users."""
        tables, synthetic = tables_of(reference, release)
        real = _lengths(tables.test)
        sample = floor_sample(tables, synthetic, rng)
        yield Score(
            component="length",
            value=wasserstein1(real, _lengths(synthetic.frame)),
            unit="rows",
            floor=None if sample is None else wasserstein1(real, _lengths(sample)),
        )


def _lengths(frame: pd.DataFrame) -> np.ndarray:
    return frame.groupby("user").size().to_numpy(dtype=float)
