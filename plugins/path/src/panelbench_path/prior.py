"""Random longitudinal tables, made up: what the public model is trained on.

A population is one random process; its tables are cut into bins by quantiles of the population, as
a private dataset is by noisy ones. No real data is in it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from panelbench_path.layout import (
    BINS,
    CATEGORIES,
    FIRST_CATEGORY,
    MISSING,
    NONE,
    SLOTS,
    VOCABULARY,
    bin_tokens,
)
from panelbench_path.potentials import Potentials
from panelbench_path.tilting import Statistics

SMOOTH = 0.3
GROUPS = 4
NOISE = 0.4
"""Standard deviation that is assumed of the measured sums; few users are noise enough."""


@dataclass(frozen=True, kw_only=True)
class Population:
    """Tables of one process as tokens.

    Attributes:
        tokens: Shape (tables, rows, columns), 0 beyond the end of a table.
        rows: Number of rows of each table.
        bias: Logarithm of how often each kind of cell holds each token, minus infinity for what it
            cannot hold; shape (SLOTS, tokens).
        potentials: What the other tables of the process say about neighbors (`Potentials`).
    """

    tokens: np.ndarray
    rows: np.ndarray
    bias: np.ndarray
    potentials: Potentials


def population(rng: np.random.Generator, *, tables: int, others: int) -> Population:
    """Draw a process and tables from it, and measure others of it.

    Regimes (a hidden Markov chain, of several user types), autoregressions of each column and of
    shared factors, fixed traits of a user, a season, and noise are added with random weights.
    Columns are numeric or categorical, may have missing values, and may be constant over time.
    """
    columns = int(rng.integers(2, 11))
    most = int(rng.integers(4, 31))
    tables, kept = tables + others, tables
    latent = _latent(rng, tables, most, columns)
    rows = rng.integers(int(rng.integers(2, most + 1)), most + 1, tables)
    tokens = np.stack([_column(rng, latent[..., c]) for c in range(columns)], axis=-1)
    there = np.arange(most) < rows[:, None]
    tokens = np.where(there[..., None], tokens, NONE)
    counts = np.stack(
        [np.bincount(tokens[..., c][there], minlength=VOCABULARY) for c in range(columns)]
    ).astype(np.float64)
    counts[counts > 0] += SMOOTH
    bias = np.full((SLOTS, VOCABULARY), -np.inf)
    with np.errstate(divide="ignore"):
        bias[:columns] = np.log(counts / counts.sum(axis=1, keepdims=True))
    statistics = Statistics.of(bias, columns=columns, groups=GROUPS, timed=False)
    sums = np.asarray(statistics.shares(tokens[kept:], rows[kept:]).sum(axis=0))
    return Population(
        tokens=tokens[:kept],
        rows=rows[:kept],
        bias=bias,
        potentials=Potentials.of(statistics, sums, NOISE),
    )


def _latent(rng: np.random.Generator, tables: int, rows: int, columns: int) -> np.ndarray:
    """A real number for each cell, shape (tables, rows, columns)."""
    shape = (tables, rows, columns)
    weight = rng.dirichlet(np.array([1.2, 0.7, 0.7, 0.7, 0.3]))
    states = int(rng.integers(2, 7))
    phase = rng.uniform(0, 2 * np.pi, (tables, 1, 1)) + rng.uniform(0, 2 * np.pi, columns)
    parts = (
        rng.standard_normal((states, columns))[_regimes(rng, tables, rows, states)],
        _autoregressions(rng, tables, rows, columns),
        _autoregressions(rng, tables, rows, 2) @ rng.standard_normal((2, columns)),
        np.broadcast_to(rng.standard_normal((tables, 1, columns)), shape),
        np.sin(2 * np.pi * np.arange(rows)[None, :, None] / rng.uniform(3, 24) + phase),
    )
    signal = sum(
        np.sqrt(w) * part / max(part.std(), 1e-9) for w, part in zip(weight, parts, strict=True)
    )
    noise = rng.standard_normal(shape) @ np.linalg.cholesky(_correlation(rng, columns)).T
    share = rng.beta(1.2, 1.2) ** rng.uniform(0.6, 1.6, columns)  # of the noise, by column
    return np.asarray(np.sqrt(1 - share) * signal / np.std(signal) + np.sqrt(share) * noise)


def _regimes(rng: np.random.Generator, tables: int, rows: int, states: int) -> np.ndarray:
    """Hidden states, shape (tables, rows); users are of one to three types."""
    types = int(rng.integers(1, 4))
    stay = rng.beta(4, 1.5, (types, 1)) * np.ones((1, states))
    stay = np.where(rng.random() < 0.5, stay, rng.beta(4, 1.5, (types, states)))
    leave = rng.dirichlet(np.full(states, 0.6), (types, states))
    matrix = stay[..., None] * np.eye(states) + (1 - stay)[..., None] * leave
    first = rng.dirichlet(np.full(states, 1.0), types)
    kind = rng.integers(0, types, tables)
    state = np.zeros((tables, rows), dtype=np.int64)
    for row in range(rows):
        chances = first[kind] if row == 0 else matrix[kind, state[:, row - 1]]
        edges = chances.cumsum(axis=1)
        state[:, row] = (rng.random((tables, 1)) > edges[:, :-1]).sum(axis=1)
    return state


def _autoregressions(rng: np.random.Generator, tables: int, rows: int, columns: int) -> np.ndarray:
    memory = rng.beta(2, 1, columns) * rng.choice([1.0, 1.0, 1.0, -0.5], columns)
    value = rng.standard_normal((tables, rows, columns))
    for row in range(1, rows):
        value[:, row] *= np.sqrt(1 - memory**2)
        value[:, row] += memory * value[:, row - 1]
    return value


def _correlation(rng: np.random.Generator, columns: int) -> np.ndarray:
    factors = rng.standard_normal((columns, 2)) * rng.uniform(0, 1.5)
    matrix = factors @ factors.T + np.eye(columns)
    scale = 1 / np.sqrt(np.diag(matrix))
    return np.asarray(matrix * scale[:, None] * scale + 1e-9 * np.eye(columns))


def _column(rng: np.random.Generator, latent: np.ndarray) -> np.ndarray:
    """Tokens of one column: numeric by quantiles, or categorical, some missing."""
    if rng.random() < 0.75:
        count = BINS if rng.random() < 0.75 else int(rng.integers(3, BINS))
        share = rng.dirichlet(np.full(count, rng.choice([1.0, 5.0, 50.0])))
        edges = np.quantile(latent, share.cumsum()[:-1])
        tokens = bin_tokens(count)[np.searchsorted(edges, latent)]
    else:
        count = int(rng.integers(2, 13))
        names = rng.permutation(CATEGORIES if rng.random() < 0.3 else 12)[:count]
        share = rng.dirichlet(np.ones(count))
        picked = np.searchsorted(np.quantile(latent, share.cumsum()[:-1]), latent)
        flip = rng.random(latent.shape) < rng.beta(1, 4)
        picked = np.where(flip, rng.choice(count, latent.shape, p=share), picked)
        tokens = FIRST_CATEGORY + names[picked]
    if rng.random() < 0.25:
        rate = rng.uniform(0, 0.8)
        sticky = rng.random((*latent.shape[:1], 1)) < rate
        alone = rng.random(latent.shape) < rate
        tokens = np.where(sticky if rng.random() < 0.3 else alone, MISSING, tokens)
    return np.asarray(tokens)
