"""A metric."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from panelbench import (
    USER_TABLES,
    Dataset,
    Direction,
    Metric,
    Release,
    Scale,
    Score,
    SyntheticTables,
    UserTables,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import numpy as np


@dataclass(frozen=True, kw_only=True)
class MeanError(Metric):
    """Mean over columns of |mean of the test users - mean of the release|, in column widths."""

    name = "mean-error"
    kind = USER_TABLES
    components: ClassVar[Mapping[str, Scale]] = {
        "error": Scale(direction=Direction.LOWER, lower=0.0, upper=1.0, perfect=0.0)
    }

    def score(
        self, reference: Dataset, release: Release, *, rng: np.random.Generator
    ) -> Iterator[Score]:
        """One score; columns without bounds or values do not count."""
        del rng
        assert isinstance(reference, UserTables)  # noqa: S101 - the harness sends what we score
        assert isinstance(release, SyntheticTables)  # noqa: S101 - the harness sends what we score
        detail: dict[str, float] = {}
        for column in reference.schema.numeric:
            real = reference.test[column.name].mean()
            made = release.frame[column.name].mean()
            if column.lower is None or column.upper is None or math.isnan(real):
                continue
            gap = abs(real - made) / (column.upper - column.lower)
            detail[column.name] = 1.0 if math.isnan(gap) else min(float(gap), 1.0)
        if detail:
            mean = sum(detail.values()) / len(detail)
            yield Score(component="error", value=mean, detail=detail)
