"""Direct: a fixed set of marginals, measured with a uniform budget."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from panelbench import (
    USER_TABLES,
    DataError,
    Established,
    GaussianEvent,
    Guarantee,
    Mechanism,
    NeighboringRelation,
    PrivacyUnit,
    SyntheticTables,
    UserTables,
)
from panelbench.accounting import mu_allowed
from panelbench.binning import Binning, bounds_of, unfit
from panelbench.bounds import Clip
from panelbench.flatten import Wide, flatten, unflatten
from panelbench_marginals.chains import Chain, counted, noisy, sampled, sampled_lengths, total
from panelbench_marginals.wide import checked

if TYPE_CHECKING:
    from panelbench import Budget, Dataset, Schema


@dataclass(frozen=True, kw_only=True)
class Direct(Mechanism):
    """All one-way and all adjacent-step two-way marginals of each column, then Private-PGM.

    The mechanism "Direct" of Rosenblatt et al. 2026 (arXiv:2602.02766): flatten the first L rows
    of every user, cut values into bins, measure d L one-way and d (L - 1) two-way marginals with
    Gaussian noise of one size, fit d chains, sample users and undo the flattening. Irregular
    times are one more column: the hour of the first row, then log-spaced gaps.

    Formal guarantee:
        Privacy unit: one user with all rows. Relation: the budget's. Every user adds exactly one
        count to each of M marginals, or none (fewer than L rows and no padding: a predicate on
        the user alone). So each marginal has L2 sensitivity 1 under add-or-remove-one and sqrt(2)
        under replace-one. Public: schema, parameters. Theorem: M Gaussian mechanisms with
        ratio r compose to mu-GDP with mu = r sqrt(M); all else is post-processing, including the
        number of tables, which is the total that the noisy marginals add up to. With `clip` "dp"
        one histogram for each numeric column, to which a user adds at most one count, is measured
        first with the share `clip_share` of mu^2; the ledger has both. With `clip` "paper" bins
        depend on private minima and percentiles: the guarantee is then none, and boards show the
        entry among the references that are not private.

    Attributes:
        horizon: Rows L of each user, cut to the schema's `max_rows`.
        bins: Equal-width bins of a numeric column; whole numbers get at most one bin each.
        pad: Keep users with fewer rows and model lengths by a padding bin; else leave them out.
        clip: "bounds", "dp" or "paper": where the outer edges of the bins come from. Public bounds
            are wide, so that most of 32 bins are empty: "dp" cuts the error of the marginals to a
            third or less at the same budget.
        clip_share: Share of the budget (of mu^2) for `clip` "dp".
        tables: Number of tables to release; the noisy total where unset.
        max_tables: Public upper limit to it.
        iterations: Mirror descent steps of the fit.
    """

    name: ClassVar[str] = "direct"
    kind: ClassVar[str] = USER_TABLES

    horizon: int = 10
    bins: int = 32
    pad: bool = False
    clip: str = "dp"
    clip_share: float = 0.1
    tables: int | None = None
    max_tables: int = 10_000
    iterations: int = 1_000

    def __post_init__(self) -> None:
        checked(
            clip=self.clip,
            clip_share=self.clip_share,
            tables=self.tables,
            horizon=self.horizon,
            bins=self.bins,
            max_tables=self.max_tables,
            iterations=self.iterations,
        )

    def supports(self, schema: Schema, budget: Budget) -> str | None:
        """Needs a limited budget, public bounds, and a known unit for irregular times."""
        return unfit(schema, budget, clip=self.clip)

    def release(
        self, dataset: Dataset, budget: Budget, *, rng: np.random.Generator
    ) -> SyntheticTables:
        """Measure, fit and sample."""
        from panelbench_marginals.fit import fitted  # noqa: PLC0415 - jax takes seconds, and threads

        if not isinstance(dataset, UserTables):
            raise DataError(f"direct needs user tables, got {dataset.kind}.")
        schema = dataset.schema
        steps = min(self.horizon, schema.max_rows)
        wide = flatten(dataset.train, schema, steps=steps, pad=self.pad)
        sensitivity = 1.0
        if budget.relation is NeighboringRelation.REPLACE_ONE:
            sensitivity = math.sqrt(2)
        mu = mu_allowed(budget)

        bounds, clipping = bounds_of(
            wide,
            schema,
            clip=self.clip,
            mu=mu * math.sqrt(self.clip_share),
            l2_sensitivity=sensitivity,
            rng=rng,
        )
        binning = Binning.of(schema, steps=steps, bounds=bounds, bins=self.bins, pad=self.pad)
        exact = [
            counted(binning.encode(wide, name), binning.sizes(name)) for name in binning.coders
        ]
        marginals = sum(chain.marginals for chain in exact)
        share = 1.0 - (self.clip_share if clipping else 0.0)
        stddev = sensitivity * math.sqrt(marginals / share) / mu
        measured = [noisy(chain, stddev, rng) for chain in exact]
        ledger = (
            *clipping,
            GaussianEvent(stddev=stddev, l2_sensitivity=sensitivity, count=marginals),
        )

        users = max(1.0, total(measured))
        chains = fitted(measured, users, iterations=self.iterations)
        count = self.tables or min(round(users), self.max_tables)
        tables = self._sampled(chains, binning, count, rng)
        private = self.clip != Clip.PAPER
        return SyntheticTables(
            schema=schema,
            frame=unflatten(tables, schema),
            guarantee=Guarantee(
                established=Established.SETTLED if private else Established.NONE,
                unit=PrivacyUnit.USER,
                relation=budget.relation,
                ledger=ledger if private else (),
                note=""
                if private
                else "Bins span [min, 99th percentile] of the private data, as in the paper.",
            ),
            info={
                "marginals": marginals,
                "stddev": stddev,
                "estimated_users": users,
                "steps": steps,
                "bounds": {name: list(pair) for name, pair in bounds.items()},
            },
        )

    def _sampled(
        self, chains: list[Chain], binning: Binning, count: int, rng: np.random.Generator
    ) -> Wide:
        lengths = np.full(count, len(chains[0].one))
        if self.pad:
            columns = binning.schema.columns  # times have another number of bins at each step
            lengths = sampled_lengths(
                chains[: len(columns)],
                [binning.coders[column.name][0].size for column in columns],
                least=binning.schema.min_rows,
                count=count,
                rng=rng,
            )
        codes = {
            name: sampled(chain, lengths, -1 if self.pad else None, rng)
            for name, chain in zip(binning.coders, chains, strict=True)
        }
        return binning.decode(codes, lengths, rng)
