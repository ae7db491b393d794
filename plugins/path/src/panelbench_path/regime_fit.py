"""A hidden Markov model fitted by expectation maximization on noisy sums.

Three stages: second moments and lagged moments say where regimes can lie and how much memory there
may be; a few steps tell regimes apart; then steps on all sums, averaged from step to step, because
the noise of each is new.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from scipy.cluster.vq import kmeans2

from panelbench_path.regime_model import Chain, floored
from panelbench_path.regime_moments import Layout, contributions

if TYPE_CHECKING:
    from collections.abc import Callable

    from panelbench_path.regime_model import Rows

LEAST_VARIANCE = 0.02
"""No variance is taken for less; scores have variance 1."""
STAY = 0.8
"""How long regimes last beforehand, where there are numbers to tell them apart by."""
BETWEEN, BETWEEN_VARIANCES = 0.02, 0.05
"""Variance of a covariance between regimes beforehand, and of a variance; what noise hides is
shared by all."""
DYING = 0.3
"""A regime with less than this part of an even share takes half of the largest."""
FORGETS = 0.8
"""Power of the step by which new sums enter the average."""


@dataclass(frozen=True, kw_only=True)
class Release:
    """Sums of clipped vectors with noise.

    Attributes:
        clip: Largest L2 norm of a user's vector.
        stddev: Of the noise on each entry.
    """

    clip: float
    stddev: float

    def of(self, vectors: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """The noisy sum of vectors of shape (users, entries)."""
        norms = np.linalg.norm(vectors, axis=1)
        scale = np.minimum(1.0, self.clip / np.maximum(norms, 1e-300))
        return np.asarray(scale @ vectors + self.stddev * rng.standard_normal(vectors.shape[1]))


@dataclass(frozen=True, kw_only=True)
class Start:
    """Second moments of scores, with the row before and with memory.

    Attributes:
        spread: Covariance of scores, shape (columns, columns).
        lagged: The symmetric part of that with the last earlier scores.
        gram: Second moments of last value and mean by column, shape (columns, 2, 2).
        pulled: Moments of scores with these, shape (columns, 2).
    """

    spread: np.ndarray
    lagged: np.ndarray
    gram: np.ndarray
    pulled: np.ndarray

    @classmethod
    def measured(
        cls, rows: Rows, release: Release, users: float, rng: np.random.Generator
    ) -> Start:
        """From the noisy sum of every user's mean moments."""
        columns = rows.scores.shape[1]
        weight = 1.0 / np.repeat(rows.lengths, rows.lengths)
        there, led = ~np.isnan(rows.scores), ~rows.blank
        scores = np.where(there, rows.scores, 0.0)
        memory = rows.memory * (there & led)[..., None]
        some = math.sqrt(columns)
        terms = [
            (scores[:, :, None] * scores[:, None, :], columns),
            (scores[:, :, None] * rows.memory[:, None, :, 0], columns),
            (there[:, :, None] & there[:, None, :], columns),
            (there[:, :, None] & led[:, None, :], columns),
            (memory[..., :, None] * memory[..., None, :], 2 * some),
            (scores[..., None] * memory, some),
        ]
        vectors = [
            rows.by_user(weight[:, None] * v.reshape(len(v), math.prod(v.shape[1:]))) / s
            for v, s in terms
        ]
        noisy = release.of(np.concatenate(vectors, axis=1), rng)
        cuts = np.cumsum([v.shape[1] for v in vectors])[:-1]
        square, lag, seen, followed, gram, pulled = (
            part.reshape(value.shape[1:]) * scale
            for part, (value, scale) in zip(np.split(noisy, cuts), terms, strict=True)
        )
        least = 0.05 * users
        lagged = lag / np.maximum(followed, least)
        return cls(
            spread=floored(square / np.maximum(seen, least), 0.05),
            lagged=(lagged + lagged.T) / 2,
            gram=floored(gram / users, LEAST_VARIANCE),
            pulled=pulled / users,
        )

    def model(
        self,
        regimes: int,
        *,
        memory: float,
        missing: np.ndarray,
        tables: list[np.ndarray],
        rng: np.random.Generator,
    ) -> Chain:
        """A first model: regimes spread over what lasts from row to row.

        Args:
            regimes: How many.
            memory: Share of the memory without regimes that it starts with.
            missing: Share of missing values by column.
            tables: Share of each code by categorical column.
            rng: The source of randomness.
        """
        columns = len(self.spread)
        stay = STAY if columns else 0.0
        weights = memory * regressed(self.gram, self.pulled, LEAST_VARIANCE)
        lasting = floored(self.lagged, LEAST_VARIANCE)
        within = floored(self.spread - lasting, 0.1)
        left = np.sqrt(np.maximum(1 - weights.sum(axis=1), 0.1))
        means = np.zeros((regimes, columns))
        if columns:
            draws = rng.multivariate_normal(np.zeros(columns), lasting, size=200 * regimes)
            means, _ = kmeans2(draws, regimes, minit="++", seed=rng)
        shares = [np.maximum(table, 1e-3) for table in tables]
        different = [
            table * np.exp((0.1 if columns else 2.0) * rng.standard_normal((regimes, len(table))))
            for table in shares
        ]
        return Chain(
            initial=np.full(regimes, 1 / regimes),
            transition=np.full((regimes, regimes), (1 - stay) / regimes) + stay * np.eye(regimes),
            means=means * (1 - weights.sum(axis=1)),
            covariances=np.tile(within * np.outer(left, left), (regimes, 1, 1)),
            memory=weights,
            spread=self.spread,
            missing=np.tile(np.clip(missing, 0.0, 0.998)[:, None], (regimes, 1, 4)),
            tables=tuple(table / table.sum(axis=1, keepdims=True) for table in different),
            sticky=np.full(len(tables), 0.05 if columns else 0.5),
        )


def regressed(gram: np.ndarray, pulled: np.ndarray, ridge: float) -> np.ndarray:
    """Weights of last value and mean, not negative, adding up to less than 1."""
    weights = np.linalg.solve(gram + ridge * np.eye(2), pulled[..., None])[..., 0]
    weights = np.maximum(weights, 0.0)
    total = weights.sum(axis=1, keepdims=True)
    return np.asarray(np.where(total > 0.99, 0.99 * weights / np.maximum(total, 1e-9), weights))


def fitted(
    model: Chain,
    rows: Rows,
    *,
    layout: Layout,
    gram: np.ndarray,
    apart: tuple[Release, int],
    whole: tuple[Release, int],
    users: float,
    followed: float,
    rng: np.random.Generator,
    say: Callable[[str], None],
) -> Chain:
    """Improve a first model.

    Args:
        model: The first model.
        rows: Private data.
        layout: Of the vectors of whole steps.
        gram: Of `Start`.
        apart: Noise and number of steps that tell regimes apart.
        whole: The same of steps on all sums.
        users: Estimated number of users.
        followed: Estimated share of users with more than one row.
        rng: The source of randomness.
        say: Where progress goes.
    """
    patterns = rows.patterns()
    first = replace(layout, whole=False)
    release, steps = apart
    for step in range(steps):
        vectors, _ = contributions(model, rows, patterns, first)
        sums = release.of(vectors, rng)
        if step < steps - 1:
            sums = revived(model, sums, first, users)
        model = improved(model, sums, first, users=users, error=release.stddev)
        say(f"regimes: step {step + 1} of {steps + whole[1]}")
    release, more = whole
    average = np.zeros(0)
    for step in range(more):
        vectors, _ = contributions(model, rows, patterns, layout)
        sums = release.of(vectors, rng)
        part = (step + 1) ** -FORGETS
        average = sums if step == 0 else (1 - part) * average + part * sums
        error = release.stddev / math.sqrt(step + 1)
        model = improved(
            model, average, layout, users=users, error=error, gram=gram, followed=followed
        )
        say(f"regimes: step {steps + step + 1} of {steps + more}")
    return model


def improved(
    model: Chain,
    sums: np.ndarray,
    layout: Layout,
    *,
    users: float,
    error: float,
    gram: np.ndarray | None = None,
    followed: float = 1.0,
) -> Chain:
    """The M step, shrunk as the noise demands.

    Args:
        model: The model that the sums were taken under.
        sums: Noisy sums.
        layout: Their layout.
        users: Estimated number of users.
        error: Standard error of each entry.
        gram: Of `Start`; without it memory stays as it is.
        followed: Estimated share of users with more than one row.
    """
    parts = layout.split(sums)
    errors = {name: error / weight for name, (_, weight) in layout.blocks.items()}
    least = 2e-3 * users
    count = np.maximum(parts["share"], least)
    means = parts["mean"] / (count + errors["mean"] ** 2 / count)[:, None]
    changed = replace(
        model,
        initial=count / count.sum(),
        means=np.clip(means, -3, 3),
        missing=_missing(model, parts["missing"], 2 * errors["missing"]),
        tables=tuple(
            _shares(
                parts[f"table {number}"],
                0.3 * errors[f"table {number}"] + 1e-3 * users / layout.regimes,
            )
            for number in range(len(layout.sizes))
        ),
    )
    if not layout.whole:
        return changed
    rows, columns = layout.triangle
    square = np.zeros((layout.regimes, layout.columns, layout.columns))
    square[:, rows, columns] = square[:, columns, rows] = parts["square"] / layout.twice
    within = square - count[:, None, None] * means[:, :, None] * means[:, None, :]
    pooled = floored(within.sum(axis=0) / count.sum(), LEAST_VARIANCE)
    size = count[:, None, None]
    between = np.where(np.eye(layout.columns, dtype=bool), BETWEEN_VARIANCES, BETWEEN)
    own = size**2 * between / (size**2 * between + errors["square"] ** 2)
    memory = model.memory
    if gram is not None:
        memory = regressed(gram, parts["memory"] / users, errors["memory"] / users)
    return replace(
        changed,
        initial=_shares(parts["initial"], 0.3 * errors["initial"] + least),
        transition=_shares(
            parts["transition"], 0.1 * errors["transition"] + 1e-3 * users / layout.regimes
        ),
        covariances=floored(own * within / size + (1 - own) * pooled, LEAST_VARIANCE),
        memory=memory,
        sticky=np.clip(parts["sticky"] / (users * max(followed, 0.01)), 1e-3, 0.99),
    )


def _shares(sums: np.ndarray, least: float) -> np.ndarray:
    kept = np.maximum(sums, least)
    return np.asarray(kept / kept.sum(axis=-1, keepdims=True))


def _missing(model: Chain, cases: np.ndarray, strength: float) -> np.ndarray:
    """Chances of a missing value, drawn to those of all regimes together."""
    together = np.maximum(cases.sum(axis=0), 0.5)
    common = together[..., 1] / together.sum(axis=-1)
    total = np.maximum(cases.sum(axis=-1), 0.0)
    chance = (np.clip(cases[..., 1], 0.0, total) + strength * common + 1e-9) / (
        total + strength + 2e-9
    )
    never = model.missing.max(axis=(0, 2)) == 0
    return np.where(never[:, None], 0.0, np.clip(chance, 1e-3, 0.999))


def revived(model: Chain, sums: np.ndarray, layout: Layout, users: float) -> np.ndarray:
    """Sums in which regimes that nearly died take half of the largest, moved apart."""
    parts = {name: part.copy() for name, part in layout.split(sums).items()}
    for k in np.flatnonzero(parts["share"] < DYING * users / layout.regimes):
        large = int(np.argmax(parts["share"]))
        for part in parts.values():
            part[k] = part[large] = part[large] / 2
        if layout.columns:
            values, vectors = np.linalg.eigh(model.covariances[large])
            step = 0.7 * math.sqrt(max(values[-1], 0.1)) * vectors[:, -1]
            parts["mean"][k] += step * parts["share"][k]
            parts["mean"][large] -= step * parts["share"][large]
    whole: np.ndarray = layout.joined({name: part[None] for name, part in parts.items()})[0]
    return whole


def matched_tables(
    model: Chain, shares: list[np.ndarray], lengths: np.ndarray
) -> tuple[np.ndarray, ...]:
    """Distributions of categories, scaled until tables of these lengths have the measured shares.

    Args:
        model: The fitted model.
        shares: Measured share of each code by categorical column.
        lengths: Rows of tables, each of which counts the same.
    """
    spent, upto, now = np.zeros(len(model.initial)), np.zeros(len(model.initial)), model.initial
    often = np.bincount(lengths)
    for rows in range(1, len(often)):
        upto, now = upto + now, now @ model.transition
        spent += often[rows] * upto / rows
    spent /= spent.sum()
    found = []
    for table, wanted in zip(model.tables, shares, strict=True):
        scaled = table
        for _ in range(20):
            scaled = scaled * np.maximum(wanted, 1e-6) / np.maximum(spent @ scaled, 1e-12)
            scaled /= scaled.sum(axis=1, keepdims=True)
        found.append(scaled)
    return tuple(found)
