"""How much of a release lies outside what the public schema allows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from panelbench import USER_TABLES, Metric, Scale, Score
from panelbench_metrics.samples import floor_sample, tables_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pandas as pd

    from panelbench import Column, Dataset, Release, Schema

GENERATED, ACCEPTED = "rows_generated", "rows_accepted"


@dataclass(frozen=True, kw_only=True)
class InvalidShare(Metric):
    """Shares of a release that no real data would have, beyond those of the test users.

    - `cells`: the mean over numeric columns of the share of known values outside the public
      bounds, or that are no whole numbers where the schema wants them; categories are always
      valid, or the release were none.
    - `tables`: tables with fewer or more rows than the schema allows.
    - `rejected`: rows that the mechanism generated and could not use; only for releases whose
      `info` has `rows_generated` and `rows_accepted` (path.md 3.8). Not compared with anything.
    """

    name: ClassVar[str] = "invalid-share"
    kind: ClassVar[str] = USER_TABLES
    components: ClassVar[Mapping[str, Scale]] = {
        "cells": Scale(upper=1.0),
        "tables": Scale(upper=1.0),
        "rejected": Scale(upper=1.0),
    }

    def score(
        self, reference: Dataset, release: Release, *, rng: np.random.Generator
    ) -> Iterator[Score]:
        """Count in the release, and in the test users."""
        tables, synthetic = tables_of(reference, release)
        schema = tables.schema
        sample = floor_sample(tables, synthetic, rng)
        if schema.numeric:
            real = _invalid(schema.numeric, tables.test)
            detail = _beyond(_invalid(schema.numeric, synthetic.frame), real)
            floors = None if sample is None else _beyond(_invalid(schema.numeric, sample), real)
            yield Score(
                component="cells",
                value=float(np.mean(list(detail.values()))),
                detail=detail,
                floor=None if floors is None else float(np.mean(list(floors.values()))),
            )
        odd = _odd(schema, synthetic.frame) - _odd(schema, tables.test)
        yield Score(component="tables", value=max(odd, 0.0), floor=0.0)
        generated, accepted = (synthetic.info.get(name) for name in (GENERATED, ACCEPTED))
        if generated and accepted is not None:
            yield Score(component="rejected", value=1.0 - float(accepted) / float(generated))


def _beyond(given: dict[str, float], real: dict[str, float]) -> dict[str, float]:
    return {name: max(share - real[name], 0.0) for name, share in given.items()}


def _invalid(columns: tuple[Column, ...], frame: pd.DataFrame) -> dict[str, float]:
    """Column -> share of its known values that are outside the public domain."""
    result = {}
    for column in columns:
        values = frame[column.name].dropna().to_numpy()
        wrong = np.zeros(len(values), dtype=bool)
        if column.lower is not None:
            wrong |= values < column.lower
        if column.upper is not None:
            wrong |= values > column.upper
        if column.integer:
            wrong |= values != np.rint(values)
        result[column.name] = float(wrong.mean()) if len(values) else 0.0
    return result


def _odd(schema: Schema, frame: pd.DataFrame) -> float:
    rows = frame.groupby("user").size().to_numpy()
    return float(np.mean((rows < schema.min_rows) | (rows > schema.max_rows)))
