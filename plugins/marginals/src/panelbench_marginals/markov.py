"""Markov: chains from histograms that are pooled over the steps, one for each user type."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from panelbench import (
    USER_TABLES,
    DataError,
    Established,
    GaussianEvent,
    Guarantee,
    Mechanism,
    PrivacyUnit,
    SyntheticTables,
    UserTables,
)
from panelbench.accounting import mu_allowed
from panelbench.binning import Binning, bounds_of, unfit
from panelbench.bounds import Clip
from panelbench.flatten import Wide, flatten, unflatten
from panelbench_marginals.clusters import clustered, described
from panelbench_marginals.generation import LENGTH_NOISE, Chains
from panelbench_marginals.pooled import initial, pooled, second_order, transitions, within_rows
from panelbench_marginals.wide import PAPER_NOTE, checked, histogram_sensitivity, noisy

if TYPE_CHECKING:
    from panelbench import Budget, Dataset, Schema


@dataclass(frozen=True, kw_only=True)
class Markov(Mechanism):
    """Lengths, first rows, transitions and pairs of columns, pooled over the steps of a user.

    Where marginals of flattened tables need one measurement for each step, one histogram for each
    column serves all steps and all lengths: the noise falls, and tables have real lengths. Rows are
    drawn column after column, each given its own value in the row before (and, with `order` 2, the
    coarse one before that) and the column of the same row that it depends on most, by the noisy
    histograms.

    With `types` above 1, users are first sorted into types by private k-means on their first row,
    mean row and change, and every histogram is split by type. That costs no sensitivity, and holds
    what no single chain can: that the beginning of a table says something about all of it.

    Formal guarantee:
        Privacy unit: one user with all rows. Relation: the budget's. To each of M histograms a user
        adds non-negative numbers that add up to at most 1 (1 for the length and the first row, a
        share for each row or pair of rows), all in the block of the user's type, which follows
        from released centers and the user alone. So each has L2 sensitivity 1 under
        add-or-remove-one and sqrt(2) under replace-one. Bounds (`clip` "dp") and types are measured
        first, with their shares of mu^2, as Gaussian events too. Public: schema, parameters.
        Theorem: Gaussian mechanisms compose to mu-GDP with mu^2 the sum of their squared ratios,
        adaptively too. All else, the number of tables included, is post-processing. With `clip`
        "paper" the guarantee is none.

    Attributes:
        bins: Equal-width bins of a numeric column; whole numbers get at most one bin each.
        order: 1, or 2 for a coarse second row of memory.
        contexts: Coarse bins of that second row.
        types: Number of user types; 1 for none.
        clip: "bounds", "dp" or "paper", as in `direct`.
        clip_share: Share of the budget (of mu^2) for `clip` "dp".
        type_share: Share of the budget (of mu^2) for finding the types.
        tables: Number of tables to release; the noisy total where unset.
        max_tables: Public upper limit to it.
    """

    name: ClassVar[str] = "markov"
    kind: ClassVar[str] = USER_TABLES

    bins: int = 16
    order: int = 1
    contexts: int = 4
    types: int = 1
    clip: str = "dp"
    clip_share: float = 0.1
    type_share: float = 0.1
    tables: int | None = None
    max_tables: int = 10_000

    def __post_init__(self) -> None:
        checked(
            clip=self.clip,
            clip_share=self.clip_share,
            tables=self.tables,
            bins=self.bins,
            contexts=self.contexts,
            types=self.types,
            max_tables=self.max_tables,
        )
        if self.order not in (1, 2):
            raise ValueError(f"order must be 1 or 2, got {self.order}.")
        if not 0 < self.type_share < 1 - self.clip_share:
            raise ValueError(
                f"type_share must be above 0 and leave something beside clip_share, "
                f"got {self.type_share}."
            )

    def supports(self, schema: Schema, budget: Budget) -> str | None:
        """Needs a limited budget, public bounds, and a known unit for irregular times."""
        return unfit(schema, budget, clip=self.clip)

    def release(
        self, dataset: Dataset, budget: Budget, *, rng: np.random.Generator
    ) -> SyntheticTables:
        """Measure and generate."""
        if not isinstance(dataset, UserTables):
            raise DataError(f"markov needs user tables, got {dataset.kind}.")
        schema = dataset.schema
        mu, sensitivity = mu_allowed(budget), histogram_sensitivity(budget)
        wide = flatten(dataset.train, schema, steps=schema.max_rows, pad=True)
        bounds, ledger = bounds_of(
            wide,
            schema,
            clip=self.clip,
            mu=mu * math.sqrt(self.clip_share),
            l2_sensitivity=sensitivity,
            rng=rng,
        )
        share = 1.0 - self.clip_share * bool(ledger)
        binning = Binning.of(
            schema, steps=schema.max_rows, bounds=bounds, bins=self.bins, pad=False
        )
        codes = {name: binning.encode(wide, name) for name in binning.coders}
        kinds = np.zeros(len(wide.lengths), dtype=np.int64)
        if self.types > 1:
            kinds, event = clustered(
                described(wide, binning, codes),
                self.types,
                mu=mu * math.sqrt(self.type_share),
                relation_factor=sensitivity,
                rng=rng,
            )
            ledger, share = (*ledger, event), share - self.type_share

        exact = self._histograms(wide, binning, codes, kinds)
        others = len(exact) - 1
        stddev = sensitivity * math.sqrt((others + LENGTH_NOISE**-2) / share) / mu
        measured = {
            key: noisy(exact[key], stddev * (LENGTH_NOISE if key == ("length",) else 1), rng)
            for key in exact
        }
        chains = Chains(measured, stddev=stddev, least=schema.min_rows)
        count = self.tables or min(max(1, round(chains.users)), self.max_tables)
        drawn, lengths = chains.drawn(count, rng)
        events = (
            GaussianEvent(stddev=LENGTH_NOISE * stddev, l2_sensitivity=sensitivity),
            GaussianEvent(stddev=stddev, l2_sensitivity=sensitivity, count=others),
        )
        private = self.clip != Clip.PAPER
        return SyntheticTables(
            schema=schema,
            frame=unflatten(binning.decode(drawn, lengths, rng), schema),
            guarantee=Guarantee(
                established=Established.SETTLED if private else Established.NONE,
                unit=PrivacyUnit.USER,
                relation=budget.relation,
                ledger=(*ledger, *events) if private else (),
                note="" if private else PAPER_NOTE,
            ),
            info={
                "histograms": len(exact),
                "stddev": stddev,
                "estimated_users": chains.users,
                "bounds": {name: list(pair) for name, pair in bounds.items()},
            },
        )

    def _histograms(
        self, wide: Wide, binning: Binning, codes: dict[str, np.ndarray], kinds: np.ndarray
    ) -> dict[tuple[str, ...], np.ndarray]:
        """All exact histograms, by what they are of; each with the type as its first axis."""
        schema, types = binning.schema, self.types
        lengths = (wide.lengths - schema.min_rows).clip(0)[:, None]
        once = np.ones((len(lengths), 1), dtype=bool)
        spread = schema.max_rows - schema.min_rows + 1
        found: dict[tuple[str, ...], np.ndarray] = {
            ("length",): pooled(kinds, [(lengths, spread)], once, types=types)
        }
        for name in binning.coders:
            sizes, own = binning.sizes(name), codes[name]
            found["first", name] = initial(wide, own, sizes[0], kinds, types)
            if schema.max_rows > 1:
                self._follow(found, wide, kinds, name=name, codes=own, size=sizes[-1])
        names = [column.name for column in schema.columns]
        for one, two in itertools.combinations(names, 2):
            found["row", one, two] = within_rows(
                wide,
                (codes[one], binning.sizes(one)[0]),
                (codes[two], binning.sizes(two)[0]),
                kinds,
                types,
            )
        return found

    def _follow(
        self,
        found: dict[tuple[str, ...], np.ndarray],
        wide: Wide,
        kinds: np.ndarray,
        *,
        name: str,
        codes: np.ndarray,
        size: int,
    ) -> None:
        """How a quantity goes on; times between rows do not depend on the first row's time."""
        if name == "time":
            gaps: list[Any] = [(codes[:, 1:], size)]
            found["next", name] = pooled(kinds, gaps, wide.present[:, 1:], types=self.types)
            return
        found["next", name] = transitions(wide, codes, size, kinds, self.types)
        if self.order == 2 and codes.shape[1] > 2:
            found["after", name] = second_order(
                wide, codes, size, kinds, self.types, contexts=self.contexts
            )
