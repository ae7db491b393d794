"""AIM: marginals chosen one after the other, each where the model is worst."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from panelbench import (
    USER_TABLES,
    Event,
    GaussianEvent,
    Mechanism,
    SyntheticTables,
    ZeroConcentratedEvent,
)
from panelbench.accounting import rho_allowed
from panelbench.binning import unfit
from panelbench.bounds import Clip
from panelbench_marginals.drawing import drawn
from panelbench_marginals.graphical import Model
from panelbench_marginals.selection import Candidates, counted, weights_of, workload_of
from panelbench_marginals.wide import (
    CELL_BYTES,
    checked,
    histogram_sensitivity,
    noisy,
    records_of,
    users_of,
)

if TYPE_CHECKING:
    from panelbench import Budget, Dataset, Schema
    from panelbench_marginals.wide import Records

MEASURE = 0.9
"""Share of each round's budget that goes into the measurement; the rest goes into the choice."""
ABSOLUTE_MEAN = math.sqrt(2 / math.pi)
"""Mean absolute value of standard Gaussian noise."""


@dataclass(frozen=True, kw_only=True)
class Aim(Mechanism):
    """AIM on flattened tables: adaptive choice of marginals, Private-PGM, budget annealing.

    McKenna, Mullins, Sheldon and Miklau 2022 (arXiv:2201.12677) on the first L rows of every user.
    First all one-way marginals are measured. Then each round picks, by the exponential mechanism,
    the marginal on which the model is worst beyond what noise would do, weighted by its overlap
    with the workload; measures it; and refits. A round that changes the model by less than noise
    would is taken as the sign to spend four times as much from then on. The last round spends what
    is left.

    Formal guarantee:
        Privacy unit: one user with all rows. Relation: the budget's. A user adds one count to
        each marginal or none, so a marginal has L2 sensitivity s = 1 under add-or-remove-one and
        sqrt(2) under replace-one, and the scores, weights w times an L1 distance, have sensitivity
        max(w) s^2. Public: schema, parameters. Theorems: a measurement with standard deviation
        sigma is (s / sigma)^2 / 2-zCDP, a choice with parameter epsilon is epsilon^2 / 8-zCDP
        (Cesar and Rogers 2021); how much a round spends follows from earlier noisy answers, and a
        round starts only with its rho still left, so all rounds are rho-zCDP together (filter of
        Whitehouse et al. 2023). The ledger has the Gaussian events of the bounds (as in `direct`)
        and of the one-way marginals, and one event with the rho of the rounds. Model sizes and
        choices follow from noisy answers alone. Sampling is post-processing.

    Attributes:
        horizon: Rows L of each user, cut to the schema's `max_rows`.
        bins: Equal-width bins of a numeric column; whole numbers get at most one bin each.
        pad: Keep users with fewer rows and model lengths by a padding bin; else leave them out.
        clip: "bounds", "dp" or "paper", as in `direct`.
        clip_share: Share of the budget (of rho) for `clip` "dp".
        degree: Variables of a workload marginal, 2 or 3.
        max_cells: Marginals with more cells do not belong to the workload.
        max_marginals: Use a random part of the workload of this size; all where unset.
        max_model_size: Largest model in MB (8 bytes a cell of its junction tree); early rounds are
            allowed the share of it that has been spent.
        rounds: Rounds T that the first noise is sized for; 16 a variable where unset.
        tables: Number of tables to release; the noisy total where unset.
        max_tables: Public upper limit to it.
        round_iterations: Most mirror descent steps after each round.
        iterations: Most mirror descent steps of the last fit.
    """

    name: ClassVar[str] = "aim"
    kind: ClassVar[str] = USER_TABLES

    horizon: int = 10
    bins: int = 32
    pad: bool = False
    clip: str = "dp"
    clip_share: float = 0.1
    degree: int = 2
    max_cells: int = 10_000
    max_marginals: int | None = None
    max_model_size: float = 10.0
    rounds: int | None = None
    tables: int | None = None
    max_tables: int = 10_000
    round_iterations: int = 100
    iterations: int = 1_000

    def __post_init__(self) -> None:
        checked(
            clip=self.clip,
            clip_share=self.clip_share,
            tables=self.tables,
            horizon=self.horizon,
            bins=self.bins,
            max_cells=self.max_cells,
            max_tables=self.max_tables,
            round_iterations=self.round_iterations,
            iterations=self.iterations,
            rounds=1 if self.rounds is None else self.rounds,
            max_marginals=1 if self.max_marginals is None else self.max_marginals,
        )
        if self.degree not in (2, 3):
            raise ValueError(f"degree must be 2 or 3, got {self.degree}.")
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
        """Measure, choose, measure again until nothing is left; then sample."""
        rho = rho_allowed(budget)
        records = records_of(
            dataset,
            budget,
            horizon=self.horizon,
            bins=self.bins,
            pad=self.pad,
            clip=self.clip,
            mu=math.sqrt(2 * self.clip_share * rho),
            rng=rng,
        )
        left = rho * (1 - self.clip_share * bool(records.clipping))
        model, ledger, info = self._fitted(records, left, histogram_sensitivity(budget), rng)
        count = self.tables or min(round(model.total), self.max_tables)
        private = self.clip != Clip.PAPER
        return records.released(
            drawn(model, count, rng),
            budget,
            (*records.clipping, *ledger) if private else (),
            info,
            rng,
        )

    def _fitted(
        self, records: Records, rho: float, sensitivity: float, rng: np.random.Generator
    ) -> tuple[Model, tuple[Event, ...], dict[str, Any]]:
        """The model, what it is charged, and facts about the rounds."""
        sizes, variables = records.sizes, len(records.sizes)
        workload = workload_of(
            sizes, degree=self.degree, max_cells=self.max_cells, most=self.max_marginals
        )
        sigma = math.sqrt((self.rounds or 16 * variables) / (2 * MEASURE * rho))
        sigma = max(sigma, math.sqrt(variables / rho))  # one-way marginals cost half at most
        stddev = sigma * sensitivity
        one_way = [
            noisy(counted(records.codes, (v,), sizes), stddev, rng) for v in range(variables)
        ]
        model = Model(sizes, users_of(one_way))
        for v, counts in enumerate(one_way):
            model.add((v,), counts, stddev).fit(model.total, self.round_iterations)
        candidates = Candidates(records.codes, model, weights_of(workload, variables))
        for component in model.components:
            candidates.refresh(model, component)

        rounds = Rounds(rho=rho - variables / (2 * sigma**2), sigma=sigma)
        chosen: list[list[int]] = []
        while rounds.open:
            rounds.begin()
            noise = rounds.sigma * sensitivity
            share = 1 - (rounds.rho - rounds.spent) / rho
            number = candidates.choose(
                model,
                cells=share * self.max_model_size * 2**20 / CELL_BYTES,
                noise=noise,
                epsilon=rounds.epsilon,
                l1_sensitivity=sensitivity**2,
                rng=rng,
            )
            clique = candidates.cliques[number]
            chosen.append(list(clique))
            before = model.project(clique)
            component = model.add(clique, noisy(candidates.counts(number), noise, rng), noise)
            component.fit(model.total, self.round_iterations)
            candidates.refresh(model, component)
            moved = model.total * np.abs(model.project(clique) - before).sum()
            if moved <= ABSOLUTE_MEAN * noise * before.size:
                rounds.anneal()
        model.total = model.estimated_total()
        for component in model.components:
            component.fit(model.total, self.iterations)
        ledger = (
            GaussianEvent(stddev=stddev, l2_sensitivity=sensitivity, count=variables),
            ZeroConcentratedEvent(rho=rounds.rho),
        )
        info = {
            "workload": len(workload),
            "rounds": len(chosen),
            "chosen": chosen,
            "estimated_users": model.total,
            "model_cells": model.cells,
        }
        return model, ledger, info


class Rounds:
    """The zCDP filter over the rounds, and how much each spends.

    Attributes:
        rho: What all rounds may spend; they spend it to the end.
        spent: What they have spent.
        sigma: Noise multiplier of the next measurement.
        open: Whether a round is left.
    """

    def __init__(self, *, rho: float, sigma: float) -> None:
        self.rho = rho
        self.spent = 0.0
        self.sigma = sigma
        self.open = True

    @property
    def cost(self) -> float:
        """Rho of a round: of its measurement, and of its choice."""
        return 1 / (2 * self.sigma**2 * MEASURE)

    @property
    def epsilon(self) -> float:
        """Parameter of the choice, whose rho is epsilon^2 / 8."""
        return math.sqrt(8 * (1 - MEASURE) * self.cost)

    def begin(self) -> None:
        """Start a round and charge it; it is the last one if less than two would be left."""
        left = self.rho - self.spent
        if left < 2 * self.cost:
            self.sigma = math.sqrt(1 / (2 * left * MEASURE))
            self.spent = self.rho
            self.open = False
        else:
            self.spent += self.cost

    def anneal(self) -> None:
        """Spend four times as much from now on."""
        self.sigma /= 2
