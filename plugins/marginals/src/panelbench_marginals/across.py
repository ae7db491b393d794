"""Direct (Across): the measurements of Direct, and pairs of columns within a step."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from panelbench import USER_TABLES, GaussianEvent, Mechanism, SyntheticTables
from panelbench.accounting import mu_allowed
from panelbench.binning import Binning, unfit
from panelbench.bounds import Clip, public_bounds
from panelbench_marginals.drawing import drawn
from panelbench_marginals.graphical import Model
from panelbench_marginals.junction import Clique, cells, triangulated
from panelbench_marginals.selection import counted
from panelbench_marginals.wide import (
    CELL_BYTES,
    checked,
    histogram_sensitivity,
    noisy,
    records_of,
    users_of,
)

if TYPE_CHECKING:
    import numpy as np

    from panelbench import Budget, Dataset, Schema


@dataclass(frozen=True, kw_only=True)
class DirectAcross(Mechanism):
    """Direct plus random pairs of columns within a step, on one Private-PGM for all columns.

    The mechanism "Direct (Across)" of Rosenblatt et al. 2026 (arXiv:2602.02766): all one-way
    marginals, all same-column pairs of adjacent steps, and up to 80 pairs of columns within a
    step, drawn uniformly. The graph has loops, so its junction tree grows quickly: a pair that
    would take it beyond `max_model_size` is left out.

    Formal guarantee:
        Privacy unit: one user with all rows. Relation: the budget's. Every user adds exactly one
        count to each of M marginals, or none, so each has L2 sensitivity 1 under
        add-or-remove-one and sqrt(2) under replace-one. Public: schema, parameters, and which
        pairs are measured: they are drawn from the seed, and left out by the sizes that public
        bounds give. Theorem: M Gaussian mechanisms with ratio r compose to mu-GDP with
        mu = r sqrt(M); all else is post-processing. With `clip` "dp" bounds are measured first, as
        in `direct`.

    Attributes:
        horizon: Rows L of each user, cut to the schema's `max_rows`.
        bins: Equal-width bins of a numeric column; whole numbers get at most one bin each.
        pad: Keep users with fewer rows and model lengths by a padding bin; else leave them out.
        clip: "bounds", "dp" or "paper", as in `direct`.
        clip_share: Share of the budget (of mu^2) for `clip` "dp".
        pairs: Most pairs of columns within a step.
        max_model_size: Largest junction tree in MB (8 bytes a cell).
        tables: Number of tables to release; the noisy total where unset.
        max_tables: Public upper limit to it.
        iterations: Most mirror descent steps of the fit.
    """

    name: ClassVar[str] = "direct-across"
    kind: ClassVar[str] = USER_TABLES

    horizon: int = 10
    bins: int = 32
    pad: bool = False
    clip: str = "dp"
    clip_share: float = 0.1
    pairs: int = 80
    max_model_size: float = 5.0
    tables: int | None = None
    max_tables: int = 10_000
    iterations: int = 300

    def __post_init__(self) -> None:
        checked(
            clip=self.clip,
            clip_share=self.clip_share,
            tables=self.tables,
            horizon=self.horizon,
            bins=self.bins,
            pairs=self.pairs,
            max_tables=self.max_tables,
            iterations=self.iterations,
        )
        if not 0 < self.max_model_size <= 1000:
            raise ValueError(
                f"max_model_size must be above 0 and at most 1000 MB, got {self.max_model_size}."
            )

    def supports(self, schema: Schema, budget: Budget) -> str | None:
        """Needs a limited budget, public bounds, and a known unit for irregular times."""
        return unfit(schema, budget, clip=self.clip)

    def release(
        self, dataset: Dataset, budget: Budget, *, rng: np.random.Generator
    ) -> SyntheticTables:
        """Measure, fit and sample."""
        mu, sensitivity = mu_allowed(budget), histogram_sensitivity(budget)
        cliques = self.measured(dataset.schema, rng)
        records = records_of(
            dataset,
            budget,
            horizon=self.horizon,
            bins=self.bins,
            pad=self.pad,
            clip=self.clip,
            mu=mu * math.sqrt(self.clip_share),
            rng=rng,
        )
        share = 1.0 - self.clip_share * bool(records.clipping)
        stddev = sensitivity * math.sqrt(len(cliques) / share) / mu
        counts = [noisy(counted(records.codes, c, records.sizes), stddev, rng) for c in cliques]
        model = Model(records.sizes, users_of(counts))
        for clique, values in zip(cliques, counts, strict=True):
            model.add(clique, values, stddev)
        for component in model.components:
            component.fit(model.total, self.iterations)
        count = self.tables or min(round(model.total), self.max_tables)
        event = GaussianEvent(stddev=stddev, l2_sensitivity=sensitivity, count=len(cliques))
        private = self.clip != Clip.PAPER
        info = {
            "marginals": len(cliques),
            "stddev": stddev,
            "estimated_users": model.total,
            "model_cells": model.cells,
            "across": [list(c) for c in cliques if len(c) == 2 and c[1] - c[0] >= records.steps],
        }
        return records.released(
            drawn(model, count, rng),
            budget,
            (*records.clipping, event) if private else (),
            info,
            rng,
        )

    def measured(self, schema: Schema, rng: np.random.Generator) -> list[Clique]:
        """Which marginals are measured; from public facts and the seed alone."""
        steps = min(self.horizon, schema.max_rows)
        bounds = {c.name: public_bounds(c) for c in schema.numeric}
        binning = Binning.of(schema, steps=steps, bounds=bounds, bins=self.bins, pad=self.pad)
        sizes = [size for name in binning.coders for size in binning.sizes(name)]
        columns = len(binning.coders)
        found: list[Clique] = [(v,) for v in range(len(sizes))]
        found += [
            (c * steps + k, c * steps + k + 1) for c in range(columns) for k in range(steps - 1)
        ]
        every = [
            (one * steps + k, two * steps + k)
            for one, two in itertools.combinations(range(columns), 2)
            for k in range(steps)
        ]
        limit = self.max_model_size * 2**20 / CELL_BYTES
        for i in rng.permutation(len(every))[: self.pairs]:
            grown = triangulated([*found, every[i]], sizes)
            if sum(cells(clique, sizes) for clique in grown) <= limit:
                found.append(every[i])
        return found
