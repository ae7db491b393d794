"""Regimes: a hidden Markov model with memory, fitted to noisy sums."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from scipy.special import ndtr, ndtri

from panelbench import (
    USER_TABLES,
    Budget,
    ColumnKind,
    DataError,
    Established,
    Event,
    GaussianEvent,
    Guarantee,
    Mechanism,
    NeighboringRelation,
    Notion,
    PrivacyUnit,
    Role,
    SyntheticTables,
    UserTables,
)
from panelbench.accounting import mu_allowed
from panelbench.binning import unfit
from panelbench.flatten import Wide, flatten, unflatten
from panelbench_path import measuring
from panelbench_path.codebook import Codebook, Listed, Quantiles, shares_of
from panelbench_path.progress import to_stderr
from panelbench_path.regime_fit import Release, Start, fitted, matched_tables
from panelbench_path.regime_model import Rows
from panelbench_path.regime_moments import Layout

if TYPE_CHECKING:
    from panelbench import Dataset, Schema

START_CLIP = 2.5
"""Largest norm of a user's first moments."""
APART_CLIP = 1.4
"""The same of the sums that tell regimes apart."""
USERS_WITHOUT_PUBLIC_NUMBER = 1000
MOST_REGIMES = 12
HEAVY = 0.02
"""A measured cell with a larger share is one score: that of its middle."""
TAIL = 1e-3
"""Normal scores are those of shares between this and one minus this."""


@dataclass(frozen=True, kw_only=True)
class Regimes(Mechanism):
    """Regimes that a person moves through, memory of that person's values, measured marginals.

    Lengths and the values of each column are measured first, as in `cells`. Numbers become normal
    scores by their measured distribution. A hidden Markov model over rows (`regime_model`) says
    how scores, categories and missing values go together: each regime has means, a covariance, a
    distribution of each category and chances of missing values; the last value and the mean of all
    earlier ones pull each column, so that a person stays recognizable for long. It is fitted by
    expectation maximization (Dempster, Laird and Rubin 1977) on sums with noise (as Park, Foulds,
    Chaudhuri and Welling 2017, arXiv:1605.06995, for mixtures), and sums are averaged over
    the steps. Drawn scores are moved, in order, to the measured marginals.

    Formal guarantee:
        Privacy unit: one user with all rows. Relation: the budget's. The histograms of lengths and
        values are those of `cells`, with the same sensitivities. In each later step a user adds
        one vector that depends on that user and on what was released before alone, cut to a
        public L2 norm C: the sum has L2 sensitivity C under add-or-remove-one and 2 C under
        replace-one, and gets Gaussian noise. The number of steps, C and all noise follow from
        schema, budget and parameters. Theorem: Gaussian mechanisms compose adaptively to mu-GDP
        with mu^2 the sum of their squared ratios. The fit reads sums alone; all else, the number
        of tables included, is post-processing. Public: schema (bounds, categories), parameters.

    Attributes:
        regimes: Number of hidden regimes; unset, as many as the nominal number of users and the
            budget can tell apart (`told_apart`), both public.
        memory: Share of the memory without regimes that fitting starts with.
        apart: Steps that tell regimes apart.
        steps: Steps on all sums.
        clip: C of these.
        marginal_share: Share of the budget (of mu^2) for marginals and lengths.
        start_share: Share for the first moments.
        apart_share: Share for telling regimes apart; the rest is for the steps on all sums.
        matched: Whether values are moved, and categories scaled, to the measured marginals.
        tables: Number of tables to release; the noisy number of users where unset.
        max_tables: Public upper limit to it.
    """

    name: ClassVar[str] = "regimes"
    kind: ClassVar[str] = USER_TABLES

    regimes: int | None = None
    memory: float = 0.8
    apart: int = 4
    steps: int = 8
    clip: float = 2.2
    marginal_share: float = 0.25
    start_share: float = 0.04
    apart_share: float = 0.1
    matched: bool = True
    tables: int | None = None
    max_tables: int = 10_000

    def __post_init__(self) -> None:
        if self.regimes is not None and self.regimes < 1:
            raise ValueError(f"regimes must be at least 1, got {self.regimes}.")
        for name in ("apart", "steps", "max_tables"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}.")
        if self.tables is not None and self.tables < 1:
            raise ValueError(f"tables must be at least 1, got {self.tables}.")
        if not 0 < self.clip < math.inf or not 0 <= self.memory <= 1:
            raise ValueError(
                f"clip must be positive and finite and memory from 0 to 1, got {self.clip} and "
                f"{self.memory}."
            )
        shares = self.marginal_share, self.start_share, self.apart_share
        if min(shares) <= 0 or sum(shares) >= 1:
            raise ValueError(
                "marginal_share, start_share and apart_share must be positive and leave something "
                f"for the other steps, got {', '.join(map(str, shares))}."
            )

    def supports(self, schema: Schema, budget: Budget) -> str | None:
        """Needs a limited budget, public bounds, and a known unit for irregular times."""
        return unfit(schema, budget, clip="dp")

    def release(
        self, dataset: Dataset, budget: Budget, *, rng: np.random.Generator
    ) -> SyntheticTables:
        """Measure, fit, draw."""
        if not isinstance(dataset, UserTables):
            raise DataError(f"{self.name} needs user tables, got {dataset.kind}.")
        schema = dataset.schema
        noise = Noise.of(self, schema, budget)
        wide = flatten(dataset.train, schema, steps=schema.max_rows, pad=True)
        measured = measuring.measure(
            measuring.masses(wide, schema),
            schema,
            stddev_of=noise.marginals,
            rng=rng,
            matched=self.matched,
        )
        book, users = measured.codebook, measured.users
        rows = rows_of(wide, book)
        start = Start.measured(rows, noise.start, users, rng)
        numeric, listed = quantities(book)
        regimes = self.regimes or told_apart(schema, budget)
        first = start.model(
            regimes,
            memory=self.memory,
            missing=np.array([code.missing or 0.0 for code in numeric.values()]),
            tables=[code.shares for code in listed.values()],
            rng=rng,
        )
        model = fitted(
            first,
            rows,
            layout=Layout(
                regimes=regimes,
                columns=len(numeric),
                sizes=tuple(len(code.shares) for code in listed.values()),
                whole=True,
            ),
            gram=start.gram,
            apart=(noise.apart, self.apart),
            whole=(noise.whole, self.steps),
            users=users,
            followed=float(measured.lengths[max(2 - schema.min_rows, 0) :].sum()),
            rng=rng,
            say=to_stderr,
        )
        count = self.tables or min(max(1, round(users)), self.max_tables)
        lengths = schema.min_rows + rng.choice(len(measured.lengths), count, p=measured.lengths)
        if self.matched:
            wanted = [code.shares for code in listed.values()]
            model = replace(model, tables=matched_tables(model, wanted, lengths))
        values = decoded(*model.drawn(lengths, rng), book=book, lengths=lengths, rng=rng)
        private = budget.notion is not Notion.UNLIMITED
        return SyntheticTables(
            schema=schema,
            frame=unflatten(values, schema),
            guarantee=Guarantee(
                established=Established.SETTLED if private else Established.NONE,
                unit=PrivacyUnit.USER,
                relation=budget.relation,
                ledger=noise.ledger if private else (),
            ),
            info={
                "estimated_users": users,
                "regimes": regimes,
                "memory": dict(zip(numeric, model.memory.sum(axis=1).tolist(), strict=True)),
            },
        )


@dataclass(frozen=True, kw_only=True)
class Noise:
    """All noise of a run, fixed before any data is read, and what it is charged.

    Attributes:
        marginals: Standard deviation by the name of the quantity.
        start: Of the first moments.
        apart: Of each step that tells regimes apart.
        whole: Of each step on all sums.
        ledger: The events.
    """

    marginals: dict[str, float]
    start: Release
    apart: Release
    whole: Release
    ledger: tuple[Event, ...]

    @classmethod
    def of(cls, settings: Regimes, schema: Schema, budget: Budget) -> Noise:
        """Fixed noise by shares of the budget."""
        mu = mu_allowed(budget)
        replaced = budget.relation is NeighboringRelation.REPLACE_ONE
        marginals, measured = measuring.noise(schema, budget, share=settings.marginal_share)
        events: list[Event] = [*measured]
        rest = 1 - settings.marginal_share - settings.start_share - settings.apart_share
        releases = []
        for clip, count, share in (
            (START_CLIP, 1, settings.start_share),
            (APART_CLIP, settings.apart, settings.apart_share),
            (settings.clip, settings.steps, rest),
        ):
            own = (2.0 if replaced else 1.0) * clip
            stddev = own * math.sqrt(count / share) / mu
            unlimited = math.isinf(mu)
            releases.append(Release(clip=math.inf if unlimited else clip, stddev=stddev))
            if not unlimited:
                events.append(GaussianEvent(stddev=stddev, l2_sensitivity=own, count=count))
        start, apart, whole = releases
        return cls(marginals=marginals, start=start, apart=apart, whole=whole, ledger=tuple(events))


def told_apart(schema: Schema, budget: Budget) -> int:
    """How many regimes so many users and so much budget can tell apart, 3 to 12."""
    mu = mu_allowed(budget)
    if math.isinf(mu):
        return MOST_REGIMES
    users = schema.nominal_users or USERS_WITHOUT_PUBLIC_NUMBER
    return min(max(round(0.6 * math.cbrt(users * mu)), 3), MOST_REGIMES)


def quantities(book: Codebook) -> tuple[dict[str, Quantiles], dict[str, Listed]]:
    """Codes of the numeric cells of a row, and of the others, by name."""
    codes = {name: book.codes[name] for name in book.names}
    numeric = {name: code for name, code in codes.items() if isinstance(code, Quantiles)}
    return numeric, {name: code for name, code in codes.items() if isinstance(code, Listed)}


def rows_of(wide: Wide, book: Codebook) -> Rows:
    """Normal scores by the measured distributions, and codes."""
    numeric, listed = quantities(book)
    shape = (*wide.present.shape, len(numeric))
    scores = np.empty(shape)
    for number, (name, code) in enumerate(numeric.items()):
        share = np.interp(wide.cells[name], code.grid, code.cdf)
        cell = np.searchsorted(code.grid, wide.cells[name], side="right") - 1
        cell = np.clip(cell, 0, len(code.grid) - 2)
        low, high = code.cdf[cell], code.cdf[cell + 1]
        share = np.where((high - low > HEAVY) & ~np.isnan(share), (low + high) / 2, share)
        scores[..., number] = ndtri(np.clip(share, TAIL, 1 - TAIL))
    codes = [code.coder.encode(wide.cells[name]) for name, code in listed.items()]
    if book.clock:
        codes[list(listed).index("time")][:, 0] = -1  # a time of day is no gap
    return Rows.of(scores, codes, wide.lengths)


def decoded(
    scores: np.ndarray,
    codes: list[np.ndarray],
    *,
    book: Codebook,
    lengths: np.ndarray,
    rng: np.random.Generator,
) -> Wide:
    """Values of drawn scores and codes."""
    numeric, listed = quantities(book)
    steps = book.schema.max_rows
    there = np.arange(scores.shape[1]) < lengths[:, None]

    def padded(values: np.ndarray) -> np.ndarray:
        whole = np.zeros((len(lengths), steps), dtype=values.dtype)
        whole[:, : values.shape[1]] = np.where(there, values, 0)
        return whole

    cells = {}
    for number, (name, code) in enumerate(numeric.items()):
        share = ndtr(scores[..., number])
        cells[name] = padded(code.placed(share, shares_of(there & ~np.isnan(share))))
    for (name, listing), own in zip(listed.items(), codes, strict=True):
        values = listing.coder.decode(own, rng)
        if name == "time":
            hours = book.codes["hour"]
            assert isinstance(hours, Listed)  # noqa: S101 - for the type
            first = rng.choice(len(hours.measured), len(lengths), p=hours.measured)
            values[:, 0] = hours.coder.decode(first, rng)
        categorical = name != "time" and book.schema[name].kind is ColumnKind.CATEGORICAL
        cells[name] = padded(values.astype(np.int64) if categorical else values)
    return Wide(cells=cells, lengths=lengths)


@dataclass(frozen=True, kw_only=True)
class RegimesNonprivate(Regimes):
    """`regimes` without noise: what the same model reaches where nothing is hidden.

    Formal guarantee:
        None. Private data is read exactly.

    Parameters are those of `regimes`; `clip` and shares of the budget do not matter.
    """

    name: ClassVar[str] = "regimes-nonprivate"
    role: ClassVar[Role] = Role.REFERENCE

    def supports(self, schema: Schema, budget: Budget) -> str | None:  # noqa: ARG002 - takes none
        """Needs public bounds."""
        missing = [c.name for c in schema.numeric if c.lower is None or c.upper is None]
        return f"needs public bounds for {missing}" if missing else None

    def release(
        self,
        dataset: Dataset,
        budget: Budget,  # noqa: ARG002 - it takes none
        *,
        rng: np.random.Generator,
    ) -> SyntheticTables:
        """The same with an unlimited budget, whatever is given."""
        return super().release(dataset, Budget.unlimited(), rng=rng)
