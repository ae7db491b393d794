"""The first rows of every user as one record of bin numbers, and records as user tables."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from panelbench import (
    DataError,
    Established,
    Event,
    Guarantee,
    NeighboringRelation,
    PrivacyUnit,
    SyntheticTables,
    UserTables,
)
from panelbench.binning import Binning, bounds_of
from panelbench.bounds import Clip
from panelbench.flatten import flatten, unflatten
from panelbench_marginals.drawing import lengths_of

if TYPE_CHECKING:
    from typing import Any

    from panelbench import Budget, Dataset, GaussianEvent

CELL_BYTES = 8
PAPER_NOTE = "Bins span [min, 99th percentile] of the private data, as in the paper."


def histogram_sensitivity(budget: Budget) -> float:
    """L2 sensitivity of a histogram to which every user adds one count, or none."""
    return math.sqrt(2) if budget.relation is NeighboringRelation.REPLACE_ONE else 1.0


@dataclass(frozen=True, kw_only=True)
class Records:
    """One record for each user.

    Attributes:
        codes: Bin numbers, shape (users, variables); the variables are the first quantity at each
            step, then the second, and so on.
        sizes: Bins of each variable.
        steps: Number of steps.
        binning: How to get values back.
        bounds: Outer edges of numeric columns.
        clipping: What finding those is charged.
    """

    codes: np.ndarray
    sizes: tuple[int, ...]
    steps: int
    binning: Binning
    bounds: dict[str, tuple[float, float]]
    clipping: tuple[GaussianEvent, ...]

    def numbers(self, name: str) -> list[int]:
        """The variables of one quantity, a step each."""
        first = list(self.binning.coders).index(name) * self.steps
        return list(range(first, first + self.steps))

    def released(
        self,
        records: np.ndarray,
        budget: Budget,
        ledger: tuple[Event, ...],
        info: dict[str, Any],
        rng: np.random.Generator,
    ) -> SyntheticTables:
        """Synthetic records as user tables, with their guarantee.

        With padding, a table ends before the first step in which most columns hold the padding
        bin; where a column does so earlier, it gets the value of another record at that step.
        """
        steps, names = self.steps, list(self.binning.coders)
        codes = {name: records[:, self.numbers(name)] for name in names}
        lengths = np.full(len(records), steps)
        if self.binning.pad:
            last = {name: np.array(self.binning.sizes(name)) - 1 for name in names}
            share = np.mean([codes[name] != last[name] for name in names], axis=0)
            lengths = lengths_of(share, self.binning.schema.min_rows)
            for name in names:
                for k in range(steps):
                    _fill(codes[name][:, k], last[name][k], rng)
        wide = self.binning.decode(codes, lengths, rng)
        private = bool(self.clipping) or ledger
        return SyntheticTables(
            schema=self.binning.schema,
            frame=unflatten(wide, self.binning.schema),
            guarantee=Guarantee(
                established=Established.SETTLED if private else Established.NONE,
                unit=PrivacyUnit.USER,
                relation=budget.relation,
                ledger=ledger,
                note="" if private else PAPER_NOTE,
            ),
            info={
                **info,
                "steps": steps,
                "bounds": {name: list(pair) for name, pair in self.bounds.items()},
            },
        )


def _fill(codes: np.ndarray, padding: int, rng: np.random.Generator) -> None:
    """Replace the padding bin by values of other records, or any where there are none."""
    empty = codes == padding
    others = codes[~empty]
    if not len(others):
        others = np.arange(padding)
    codes[empty] = rng.choice(others, int(empty.sum()))


def records_of(
    dataset: Dataset,
    budget: Budget,
    *,
    horizon: int,
    bins: int,
    pad: bool,
    clip: str,
    mu: float,
    rng: np.random.Generator,
) -> Records:
    """Flatten user tables and bin them; `mu` is what finding bounds may spend."""
    if not isinstance(dataset, UserTables):
        raise DataError(f"This mechanism needs user tables, got {dataset.kind}.")
    schema = dataset.schema
    steps = min(horizon, schema.max_rows)
    wide = flatten(dataset.train, schema, steps=steps, pad=pad)
    bounds, clipping = bounds_of(
        wide, schema, clip=clip, mu=mu, l2_sensitivity=histogram_sensitivity(budget), rng=rng
    )
    binning = Binning.of(schema, steps=steps, bounds=bounds, bins=bins, pad=pad)
    return Records(
        codes=np.concatenate([binning.encode(wide, name) for name in binning.coders], axis=1),
        sizes=tuple(size for name in binning.coders for size in binning.sizes(name)),
        steps=steps,
        binning=binning,
        bounds=bounds,
        clipping=clipping,
    )


MOST_BINS = 1_000


def checked(*, clip: str, clip_share: float, tables: int | None, **at_least_one: int) -> None:
    """Refuse wrong values of the parameters that mechanisms over records share.

    Raises:
        ValueError: Naming the parameter, what was given and what is expected.
    """
    if clip not in list(Clip):
        raise ValueError(f"clip must be one of {[str(c) for c in Clip]}, got {clip!r}.")
    if not 0 < clip_share < 1:
        raise ValueError(f"clip_share must lie between 0 and 1, got {clip_share}.")
    for name, value in at_least_one.items():
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}.")
    if at_least_one.get("bins", 1) > MOST_BINS:
        raise ValueError(f"bins must be at most {MOST_BINS}, got {at_least_one['bins']}.")
    if tables is not None and tables < 1:
        raise ValueError(f"tables must be at least 1 or unset, got {tables}.")


def noisy(counts: np.ndarray, stddev: float, rng: np.random.Generator) -> np.ndarray:
    """Counts plus independent Gaussian noise."""
    return counts + rng.normal(0.0, stddev, counts.shape)


def users_of(marginals: list[np.ndarray]) -> float:
    """The number of users that noisy marginals add up to, each weighted by 1 / its cells."""
    weights = [1 / counts.size for counts in marginals]
    return max(1.0, float(np.average([counts.sum() for counts in marginals], weights=weights)))
