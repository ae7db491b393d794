"""A private mechanism."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

from panelbench import (
    USER_TABLES,
    Budget,
    Dataset,
    Established,
    GaussianEvent,
    Guarantee,
    Mechanism,
    NeighboringRelation,
    Schema,
    SyntheticTables,
    UserTables,
)
from panelbench.accounting import gaussian_stddev


@dataclass(frozen=True, kw_only=True)
class Histograms(Mechanism):
    """One noisy histogram a column; the cells of the synthetic tables are drawn independently.

    Formal guarantee: each user adds a histogram of total mass 1 to each of d columns, so all of
    them together have L2 sensitivity sqrt(d) under add-or-remove-one and at most sqrt(2 d) under
    replace-one (two histograms of mass 1 are at most sqrt(2) apart). Gaussian noise is calibrated
    to the whole budget (Balle and Wang 2018). Bins come from the schema's public bounds, the
    number of tables and their lengths from the schema alone; the rest is post-processing.

    Attributes:
        bins: Bins over the public bounds of a column.
    """

    name = "histograms"
    kind = USER_TABLES

    bins: int = 20

    def __post_init__(self) -> None:
        if self.bins < 2:
            raise ValueError(f"bins must be at least 2, got {self.bins}.")

    def supports(self, schema: Schema, budget: Budget) -> str | None:
        """Say why not, from public metadata only."""
        del budget
        unbounded = [c.name for c in schema.numeric if c.lower is None or c.upper is None]
        if unbounded:
            return f"column '{unbounded[0]}' has no public bounds"
        if schema.nominal_users is None:
            return "the schema publishes no number of users"
        return None

    def release(
        self, dataset: Dataset, budget: Budget, *, rng: np.random.Generator
    ) -> SyntheticTables:
        """Measure every column, then draw tables."""
        assert isinstance(dataset, UserTables)  # noqa: S101 - the harness sends only what we read
        schema, train = dataset.schema, dataset.train
        replaced = budget.relation is NeighboringRelation.REPLACE_ONE
        sensitivity = math.sqrt(len(schema.columns) * (2 if replaced else 1))
        stddev = gaussian_stddev(budget, l2_sensitivity=sensitivity)
        weights = 1.0 / train.groupby("user")["time"].transform("size").to_numpy()

        tables = schema.nominal_users or 0
        rows = rng.integers(schema.min_rows, schema.max_rows + 1, tables)
        frame: dict[str, object] = {
            "user": np.repeat(np.arange(tables), rows),
            "time": np.concatenate([np.arange(n) for n in rows]),
        }
        for column in schema.columns:
            options = self._options(column.categories)
            codes = self._codes(train[column.name], column.lower, column.upper, options)
            counts = np.bincount(codes, weights=weights, minlength=options + 1)
            noisy = np.maximum(counts + rng.normal(0.0, stddev, options + 1), 0.0)
            noisy[options] *= column.nullable  # the last bin counts missing values
            share = noisy / noisy.sum() if noisy.sum() > 0 else np.full(options + 1, 1 / options)
            share[options] *= column.nullable
            drawn = rng.choice(options + 1, rows.sum(), p=share / share.sum())
            missing = drawn == options
            if column.categories:
                names = np.array([*column.categories, None], dtype=object)
                frame[column.name] = names[drawn]
            else:
                assert column.lower is not None  # noqa: S101 - supports() refused the rest
                assert column.upper is not None  # noqa: S101 - supports() refused the rest
                width = (column.upper - column.lower) / options
                values = column.lower + width * (drawn + rng.random(len(drawn)))
                values = np.round(values) if column.integer else values
                frame[column.name] = np.where(missing, np.nan, values)
        return SyntheticTables(
            schema=schema,
            frame=pd.DataFrame(frame),
            guarantee=Guarantee(
                established=Established.SETTLED,
                unit=schema.unit,
                relation=budget.relation,
                ledger=(GaussianEvent(stddev=stddev, l2_sensitivity=sensitivity),),
            ),
        )

    def _options(self, categories: tuple[str, ...]) -> int:
        return len(categories) or self.bins

    @staticmethod
    def _codes(
        values: pd.Series, lower: float | None, upper: float | None, options: int
    ) -> np.ndarray:
        """The bin of each value; `options` for a missing one."""
        if isinstance(values.dtype, pd.CategoricalDtype):
            codes = values.cat.codes.to_numpy(dtype=np.int64)
            return np.where(codes < 0, options, codes)
        numbers = values.to_numpy(dtype=np.float64)
        assert lower is not None  # noqa: S101 - supports() refused the rest
        assert upper is not None  # noqa: S101 - supports() refused the rest
        scaled = np.nan_to_num((numbers - lower) / (upper - lower), nan=0.0)
        codes = np.clip((scaled * options).astype(np.int64), 0, options - 1)
        return np.where(np.isnan(numbers), options, codes)
