"""Whether synthetic trajectories are as far from the training data as held-out real ones are."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from panelbench import USER_TABLES, Metric, Scale, Score
from panelbench_metrics.samples import (
    check_rows,
    column_scale,
    remaining_train,
    some_users,
    tables_of,
)
from panelbench_metrics.shapes import courses_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pandas as pd

    from panelbench import Column, Dataset, Release
    from panelbench_metrics.nearest import Packed

BINS = 40
WORST = math.sqrt(math.log(2.0))
_EMPTY = 1e-12  # added to every count, so that no logarithm is infinite
_FAR = 1e300  # distances beyond are cut to it


@dataclass(frozen=True, kw_only=True)
class Tdcr(Metric):
    """Trajectory distance to the closest record, as a divergence (path.md 3.2).

    The distance of two tables is the sum over numeric columns of the cost of dynamic time warping
    (local cost |a - b|, no window) divided by the length of the warping path; where paths tie, the
    diagonal step goes before a step in the first series, and that before one in the second.
    Missing values take the last known value of their table, else the next one, else 0. Each
    synthetic table and each test table has a distance to the nearest table among the training
    users that the release does not copy. The score is the square root of the Jensen-Shannon
    divergence, natural logarithm, of the two samples of distances, over 40 equal bins between
    their smallest and their largest value: 0 for the test users themselves, at most
    sqrt(ln 2) = 0.8326 (Rosenblatt et al. 2026, arXiv:2602.02766).

    - `raw`: values in their own units.
    - `scaled`: each column's term divided by the standard deviation of the training users' values,
      by the public width where that is 0, by 1 where there is none.

    Even two samples of one distribution are apart; the floor is the same score for as many training
    tables as synthetic ones, each compared with all other tables of the reference. Compare scores
    with it, and only at the same sizes. The detail holds the sizes, the mean distances and the
    share of synthetic tables at distance 0. A release that copies every training user leaves no
    reference and scores the worst value; a schema without numeric columns has no score.

    Panels, for whole tables: the mean by row and the middle 80 %, of the first eight columns.

    Attributes:
        max_tables: How many synthetic and how many test tables are used at most, chosen at random;
            the same places of both, so that the reference against itself stays at 0.
        max_reference: How many training tables they are compared with at most, chosen at random.
        threads: How many threads to use, at most; `NUMBA_NUM_THREADS` caps it too. Scores do not
            depend on it.
        rows: Cut every table to its first so many rows and drop shorter ones; None for whole
            tables.
    """

    name: ClassVar[str] = "tdcr"
    kind: ClassVar[str] = USER_TABLES
    components: ClassVar[Mapping[str, Scale]] = {
        "raw": Scale(upper=WORST),
        "scaled": Scale(upper=WORST),
    }

    max_tables: int = 1000
    max_reference: int = 5000
    threads: int = 1
    rows: int | None = None

    def __post_init__(self) -> None:
        for name in ("max_tables", "max_reference", "threads"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}.")
        check_rows(self.rows)

    def score(
        self, reference: Dataset, release: Release, *, rng: np.random.Generator
    ) -> Iterator[Score]:
        """Compare the release with the test users."""
        # numba takes a second to import, which the other metrics need not pay
        from panelbench_metrics.nearest import nearest_distances  # noqa: PLC0415

        tables, synthetic = tables_of(reference, release, rows=self.rows)
        columns = tables.schema.numeric
        if not columns:
            return
        train = remaining_train(tables, synthetic)
        whole = self.rows is None
        pictures = courses_of(columns, tables.test, synthetic.frame) if whole else {}
        users = rng.permutation(train["user"].unique())
        seed = int(rng.integers(2**63))
        if not len(users):
            yield from (Score(component=name, value=WORST) for name in self.components)
            return
        fake = _packed(synthetic.frame, some_users(synthetic.frame, self.max_tables, seed), columns)
        real = _packed(tables.test, some_users(tables.test, self.max_tables, seed), columns)
        near = np.sort(users[: self.max_reference])
        others = np.sort(users[-len(fake.rows) :])
        known, held_out = _packed(train, near, columns), _packed(train, others, columns)
        skip = np.searchsorted(near, others)
        skip[near[np.minimum(skip, len(near) - 1)] != others] = -1
        scales = [column_scale(c, train[c.name].dropna().to_numpy()) for c in columns]
        weights = np.stack([np.ones(len(columns)), 1.0 / np.array(scales)])
        distances = [
            np.minimum(
                nearest_distances(part, known, weights, skip=own, threads=self.threads), _FAR
            )
            for part, own in ((fake, None), (real, None), (held_out, skip))
        ]
        for component, (of_fake, of_real, of_others) in zip(
            self.components, zip(*distances, strict=True), strict=True
        ):
            yield Score(
                component=component,
                value=divergence(of_fake, of_real),
                detail={
                    "synthetic tables": float(len(of_fake)),
                    "test tables": float(len(of_real)),
                    "reference tables": float(len(near)),
                    "floor tables": float(len(of_others)),
                    "mean synthetic distance": float(np.mean(of_fake)),
                    "mean test distance": float(np.mean(of_real)),
                    "share of synthetic copies": float(np.mean(of_fake == 0.0)),
                },
                floor=divergence(of_others, of_real) if len(users) > 1 else None,
                panels=pictures if component == "raw" else {},
            )


def divergence(a: np.ndarray, b: np.ndarray) -> float:
    """Square root of the Jensen-Shannon divergence of two binned samples, natural logarithm.

    >>> round(divergence(np.array([0.0, 0.1]), np.array([0.9, 1.0])), 4)
    0.8326
    """
    low = min(a.min(), b.min())
    width = max(a.max(), b.max()) - low
    if not width > 0:
        return 0.0
    shares = []
    for sample in (a, b):
        cells = np.minimum((sample - low) / width * BINS, BINS - 1).astype(np.int64)
        counts = np.bincount(cells, minlength=BINS) + _EMPTY
        shares.append(counts / counts.sum())
    middle = (shares[0] + shares[1]) / 2
    total = sum(float(np.sum(share * np.log(share / middle))) for share in shares)
    return min(math.sqrt(max(total / 2, 0.0)), WORST)


def _packed(frame: pd.DataFrame, users: np.ndarray, columns: tuple[Column, ...]) -> Packed:
    """The tables of `users` (sorted) with missing values filled."""
    from panelbench_metrics.nearest import Packed  # noqa: PLC0415 - see Tdcr.score

    chosen = frame[frame["user"].isin(users)]
    names = [column.name for column in columns]
    filled = chosen.groupby("user")[names].ffill()
    filled = filled.groupby(chosen["user"]).bfill().fillna(0.0)
    starts = np.flatnonzero(np.diff(chosen["user"].to_numpy())) + 1
    return Packed.of(np.split(filled.to_numpy(dtype=np.float64), starts))
