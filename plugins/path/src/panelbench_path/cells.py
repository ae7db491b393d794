"""Cells: a small transformer over cells, made public on made-up tables, tuned under DP."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from panelbench import (
    USER_TABLES,
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
    SampledGaussianEvent,
    SyntheticTables,
    UserTables,
)
from panelbench.accounting import calibrate, mu_allowed
from panelbench.binning import unfit
from panelbench.flatten import Wide, flatten, unflatten
from panelbench_path import measuring, tilting
from panelbench_path.layout import CATEGORIES, SLOTS

if TYPE_CHECKING:
    from panelbench import Budget, Dataset, Schema

CLIP = 0.05
"""The median norm of a made-up table's gradient at the start of tuning."""
SAMPLED = 0.1
"""Standard deviation of one user's share of a bin, about: people are a sample, too."""
USERS_WITHOUT_PUBLIC_NUMBER = 1000


@dataclass(frozen=True, kw_only=True)
class Cells(Mechanism):
    """One token a cell, a public prior over tables, and DP-SGD with one gradient a table.

    First come noisy marginals: lengths of tables, and the values of each column as a cumulative
    histogram whose error hardly grows with its resolution. Numeric columns are cut into bins of
    equal measured share. A transformer of 0.4 million weights that was trained on made-up tables
    only (`pretrain`) reads a table cell by cell. The measured shares are added to its logits, so
    that it starts with the right marginals; so are measured transitions and pairs of columns
    (`potentials`), with tuned weights. Its adapters are tuned with DP-SGD on the mean loss
    over the whole table of each user (of tables with more than `window` cells, over a
    window at a random place). More tables are drawn than wanted; the same transitions and pairs
    decide which are taken (`tilting`), and numeric values are moved, in order, to the measured
    marginals. Lengths are drawn from the measured ones, whatever a table holds.

    Formal guarantee:
        Privacy unit: one user with all rows. Relation: the budget's. To each of the M histograms of
        marginals, transitions and pairs a user adds non-negative masses that add up to at most 1;
        so a plain one has L2 sensitivity 1 under add-or-remove-one, a cumulative one the length
        of the first column of R (`cumulative.l2_sensitivity`; with the share of missing values, at
        most 1, the root of one more than its square), and all sqrt(2) times that under replace-one,
        because two vectors with non-negative entries have no negative inner product.
        These are Gaussian mechanisms with fixed noise. Training is the Poisson-sampled
        Gaussian mechanism (`dpsgd.train`): a user is sampled by itself in every step, and adds a
        gradient of L2 norm at most 0.05 that depends on that user, the weights, and random
        numbers alone. The noise of training is calibrated with all events together, by the
        accountant that settles them, before any data is read; sampling probability, number of steps
        and all noise follow from schema, budget and parameters. The pretrained weights read no
        private data. Public: schema (bounds, categories, nominal number of users), parameters.
        Adaptive composition covers bins, bias and gradients that depend on earlier releases; all
        else, drawing, selection and values included, is post-processing. The number of users enters
        through noisy counts only, and the denominator of the gradient is the public nominal number.

    Attributes:
        tune: "lora" (adapters of `rank`) or "all" (all linear layers).
        rank: Of the adapters.
        rate: Largest learning rate.
        batch: Expected users in a step; the sampling probability is this over the schema's nominal
            number of users (1,000 where it has none).
        steps: Steps of DP-SGD.
        window: Most cells of a table in a step, and that the model looks back on.
        marginal_share: Share of the budget (of mu^2) for marginals and lengths.
        tilt_share: Share of the budget (of mu^2) for transitions and pairs; 0 for none.
        potentials: Whether they are also added to the model's logits, with tuned weights.
        groups: Coarse groups of a column in these.
        over: Tables drawn for each that is released, for the selection; 1 for none.
        quantile: Bins of equal measured share; else of equal width.
        matched: Whether numeric values are moved to the measured marginals.
        engine: "books", or "opacus".
        tables: Number of tables to release; the noisy number of users where unset.
        max_tables: Public upper limit to it.
    """

    name: ClassVar[str] = "cells"
    kind: ClassVar[str] = USER_TABLES

    tune: str = "lora"
    rank: int = 4
    rate: float = 0.02
    batch: int = 128
    steps: int = 60
    window: int = 144
    marginal_share: float = 0.25
    tilt_share: float = 0.15
    potentials: bool = True
    groups: int = 4
    over: float = 2.0
    quantile: bool = True
    matched: bool = True
    engine: str = "books"
    tables: int | None = None
    max_tables: int = 10_000

    def __post_init__(self) -> None:
        if self.tune not in ("lora", "all"):
            raise ValueError(f"tune must be 'lora' or 'all', got {self.tune!r}.")
        if self.engine not in ("books", "opacus"):
            raise ValueError(f"engine must be 'books' or 'opacus', got {self.engine!r}.")
        for name in ("rank", "batch", "steps", "window", "max_tables"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}.")
        if self.tables is not None and self.tables < 1:
            raise ValueError(f"tables must be at least 1, got {self.tables}.")
        if not self.rate > 0 or self.groups < 2 or not self.over >= 1:
            raise ValueError(
                f"rate must be positive, groups at least 2, over at least 1, got {self.rate}, "
                f"{self.groups}, {self.over}."
            )
        if not (self.marginal_share > 0 <= self.tilt_share):
            raise ValueError("marginal_share must be positive, and tilt_share at least 0.")
        if self.marginal_share + self.tilt_share >= 1:
            raise ValueError(
                f"marginal_share and tilt_share must leave something for training, got "
                f"{self.marginal_share} and {self.tilt_share}."
            )

    def supports(self, schema: Schema, budget: Budget) -> str | None:
        """Needs public bounds, a budget that sampled steps can be accounted in, and few columns."""
        if budget.notion is Notion.ZERO_CONCENTRATED_DP:
            return "sampled steps have no zCDP parameter; state the budget as (epsilon, delta)"
        replace = budget.relation is NeighboringRelation.REPLACE_ONE
        if budget.notion is Notion.RENYI_DP and replace:
            return "sampled steps have no known Renyi bound under replace-one"
        return unfit(schema, budget, clip="dp") or self._too_large(schema)

    def _too_large(self, schema: Schema) -> str | None:
        if len(schema.columns) + 2 > SLOTS:
            return f"needs at most {SLOTS - 2} columns, got {len(schema.columns)}"
        wide = [c.name for c in schema.categorical if len(c.categories) > CATEGORIES]
        return f"needs at most {CATEGORIES} categories, more in {wide}" if wide else None

    def release(
        self, dataset: Dataset, budget: Budget, *, rng: np.random.Generator
    ) -> SyntheticTables:
        """Measure, train, draw, select."""
        if not isinstance(dataset, UserTables):
            raise DataError(f"{self.name} needs user tables, got {dataset.kind}.")
        from panelbench_path.potentials import Potentials  # noqa: PLC0415 - imports torch
        from panelbench_path.tuned_cells import tuned_and_drawn  # noqa: PLC0415 - imports torch

        schema = dataset.schema
        noise = Noise.of(self, schema, budget)
        wide = flatten(dataset.train, schema, steps=schema.max_rows, pad=True)
        measured = measuring.measure(
            measuring.masses(wide, schema),
            schema,
            stddev_of=noise.marginals,
            rng=rng,
            quantile=self.quantile,
            matched=self.matched,
        )
        book = measured.codebook
        tokens = book.encode(wide)
        count = self.tables or min(max(1, round(measured.users)), self.max_tables)
        tilts = self.tilt_share > 0
        drawn = math.ceil(count * self.over) if tilts else count
        lengths = schema.min_rows + rng.choice(len(measured.lengths), drawn, p=measured.lengths)
        statistics = tilting.Statistics.of(
            book.bias(), columns=tokens.shape[2], groups=self.groups, timed=book.clock
        )
        sums, potentials = np.zeros(0), None
        if tilts:
            exact = np.asarray(statistics.shares(tokens, wide.lengths).sum(axis=0))
            sums = exact + noise.tilt * rng.standard_normal(len(exact))
            if self.potentials:
                potentials = Potentials.of(statistics, sums, noise.tilt)
        made, tuned = tuned_and_drawn(
            self,
            book=book,
            private=(tokens, wide.lengths),
            lengths=lengths,
            noise=noise,
            potentials=potentials,
            rng=rng,
        )
        effective = 1.0
        if drawn > count:
            chances, effective = tilting.careful(
                statistics.shares(made, lengths),
                sums / measured.users,
                math.hypot(noise.tilt, SAMPLED * math.sqrt(measured.users)) / measured.users,
                lengths,
            )
            taken = tilting.drawn(chances, count, rng)
            made, lengths = made[taken], lengths[taken]
        values = Wide(cells=book.decode(made, lengths, rng), lengths=lengths)
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
                "estimated_users": measured.users,
                "effective_share": effective,
                "noise_multiplier": noise.training / CLIP,
                "weights": tuned,
                "bins": {name: len(code.tokens) for name, code in book.codes.items()},
            },
        )


@dataclass(frozen=True, kw_only=True)
class Noise:
    """All noise of a run, fixed before any data is read, and what it is charged.

    Attributes:
        marginals: Standard deviation by the name of the quantity.
        tilt: Of transitions and pairs; 0 where there are none.
        training: Of the sum of clipped gradients.
        sampling: Probability with which a user takes part in a step.
        nominal: The public number of users that gradients are divided by.
        ledger: The events.
    """

    marginals: dict[str, float]
    tilt: float
    training: float
    sampling: float
    nominal: float
    ledger: tuple[Event, ...]

    @classmethod
    def of(cls, settings: Cells, schema: Schema, budget: Budget) -> Noise:
        """Fixed noise by shares of the budget, and the noise of training that uses up the rest."""
        nominal = float(schema.nominal_users or USERS_WITHOUT_PUBLIC_NUMBER)
        sampling = min(1.0, settings.batch / nominal)
        marginals, measured = measuring.noise(schema, budget, share=settings.marginal_share)
        columns = len(schema.columns) + (not schema.regular)
        pairs = columns + columns * (columns - 1) // 2
        mu = mu_allowed(budget)
        if math.isinf(mu):
            return cls(
                marginals=marginals, tilt=0.0, training=0.0,
                sampling=sampling, nominal=nominal, ledger=(),
            )  # fmt: skip
        events: list[Event] = [*measured]
        tilt = 0.0
        if settings.tilt_share > 0:
            own = measuring.relation_factor(budget.relation)
            tilt = own * math.sqrt(pairs / settings.tilt_share) / mu
            events.append(GaussianEvent(stddev=tilt, l2_sensitivity=own, count=pairs))

        def ledger_of(multiplier: float) -> tuple[Event, ...]:
            training = SampledGaussianEvent(
                stddev=multiplier * CLIP, clipping_norm=CLIP,
                sampling_probability=sampling, count=settings.steps,
            )  # fmt: skip
            return (*events, training)

        multiplier = calibrate(budget, ledger_of, relative=2e-3)
        return cls(
            marginals=marginals, tilt=tilt, training=multiplier * CLIP, sampling=sampling,
            nominal=nominal, ledger=ledger_of(multiplier),
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class CellsNonprivate(Cells):
    """`cells` without noise: what the same model and the same effort reach where nothing is hidden.

    Formal guarantee:
        None. Private data is read exactly, and gradients have no noise.

    Parameters are those of `cells`; a share of the budget matters only where 0 leaves a part out.
    """

    name: ClassVar[str] = "cells-nonprivate"
    role: ClassVar[Role] = Role.REFERENCE

    def supports(self, schema: Schema, budget: Budget) -> str | None:  # noqa: ARG002 - takes none
        """Needs public bounds, and few columns."""
        missing = [c.name for c in schema.numeric if c.lower is None or c.upper is None]
        if missing:
            return f"needs public bounds for {missing}"
        return self._too_large(schema)
