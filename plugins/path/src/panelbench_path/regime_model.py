"""A hidden Markov model over rows: numbers with memory, categories, and gaps that last.

Numbers are normal scores. In a regime k the scores of a row are

    z = A h + e,   e ~ N(mean_k, covariance_k),

where h holds, column by column, the last earlier value and the mean of all earlier values, and A
weighs these two, the same in all regimes. Regimes hold what changes at once in several columns,
the memory what makes one person's values differ from another's for long. Where a column has no
earlier value, its memory is an unknown with the covariance of all values (`spread`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

SEEN, GAP, NEVER, FIRST = range(4)
"""What is known of a column's earlier values: one above, one before that, none; or a first row."""

LARGEST = 3.5
"""Drawn scores are cut to it; the measured marginals decide what they are worth."""

Pattern = tuple[np.ndarray, np.ndarray, np.ndarray]


@dataclass(frozen=True, kw_only=True)
class Rows:
    """All rows of all users, one below the other.

    Attributes:
        lengths: Rows of each user, shape (users,).
        scores: Normal scores, NaN where missing, shape (rows, columns).
        memory: Last earlier value and mean of all earlier values, 0 where there is none, shape
            (rows, columns, 2).
        blank: Whether there is no earlier value, shape (rows, columns).
        state: What is known of earlier values (`SEEN` and so on), shape (rows, columns).
        codes: Of each categorical column, shape (rows,); -1 where there is nothing to explain.
        codes_above: In the row before, -1 where there is none.
    """

    lengths: np.ndarray
    scores: np.ndarray
    memory: np.ndarray
    blank: np.ndarray
    state: np.ndarray
    codes: tuple[np.ndarray, ...]
    codes_above: tuple[np.ndarray, ...]

    @classmethod
    def of(cls, scores: np.ndarray, codes: list[np.ndarray], lengths: np.ndarray) -> Rows:
        """From arrays of shape (users, steps, columns) and (users, steps)."""
        users, steps, columns = scores.shape
        there = np.arange(steps) < lengths[:, None]
        memory = np.zeros((users, steps, columns, 2))
        blank = np.zeros(scores.shape, dtype=bool)
        state = np.zeros(scores.shape, dtype=np.int64)
        past = Past.none(users, columns)
        for step in range(steps):
            memory[:, step], blank[:, step] = past.memory, past.blank
            state[:, step] = past.state
            past = past.after(scores[:, step])
        above = [np.pad(c, ((0, 0), (1, 0)), constant_values=-1)[:, :-1] for c in codes]
        return cls(
            lengths=lengths,
            scores=scores[there],
            memory=memory[there],
            blank=blank[there],
            state=state[there],
            codes=tuple(c[there] for c in codes),
            codes_above=tuple(c[there] for c in above),
        )

    @property
    def starts(self) -> np.ndarray:
        """Where each user's rows begin."""
        return np.concatenate([[0], self.lengths.cumsum()[:-1]])

    def by_user(self, values: np.ndarray) -> np.ndarray:
        """Sums over the rows of each user, shape (users, entries)."""
        flat = values.reshape(len(values), math.prod(values.shape[1:]))
        if not len(self.lengths):
            return np.zeros(flat.shape)
        return np.asarray(np.add.reduceat(flat, self.starts, axis=0))

    def patterns(self) -> list[Pattern]:
        """Rows that miss the same values and have no memory of the same ones.

        Each is the numbers of the rows, which columns are missing, and which are there but have no
        earlier value.
        """
        gone = np.isnan(self.scores)
        if not len(gone):
            return []
        known = np.concatenate([gone, self.blank & ~gone], axis=1)
        _, number = np.unique(np.packbits(known, axis=1), axis=0, return_inverse=True)
        order = np.argsort(number.ravel(), kind="stable")
        cuts = np.flatnonzero(np.diff(number.ravel()[order])) + 1
        columns = gone.shape[1]
        return [
            (rows, known[rows[0], :columns], known[rows[0], columns:])
            for rows in np.split(order, cuts)
        ]


@dataclass(frozen=True, kw_only=True)
class Past:
    """What is known of the earlier values of each column, shape (users, columns) each."""

    last: np.ndarray
    total: np.ndarray
    count: np.ndarray
    state: np.ndarray

    @classmethod
    def none(cls, users: int, columns: int) -> Past:
        """Nothing yet."""
        zero = np.zeros((users, columns))
        return cls(last=zero, total=zero, count=zero, state=np.full(zero.shape, FIRST))

    @property
    def blank(self) -> np.ndarray:
        """Where there is no earlier value."""
        return np.asarray(self.count == 0)

    @property
    def memory(self) -> np.ndarray:
        """Last value and mean, shape (users, columns, 2)."""
        return np.stack([self.last, self.total / np.maximum(self.count, 1)], axis=-1)

    def after(self, scores: np.ndarray) -> Past:
        """The same one row later."""
        there = ~np.isnan(scores)
        count = self.count + there
        return Past(
            last=np.where(there, scores, self.last),
            total=self.total + np.where(there, scores, 0.0),
            count=count,
            state=np.where(there, SEEN, np.where(count > 0, GAP, NEVER)),
        )


@dataclass(frozen=True, kw_only=True)
class Chain:
    """Parameters; K regimes, d numeric columns.

    Attributes:
        initial: Shape (K,).
        transition: Shape (K, K), rows add up to 1.
        means: Of the innovations, shape (K, d).
        covariances: Of the innovations, shape (K, d, d).
        memory: Weights of last value and mean, shape (d, 2).
        spread: Covariance of all values, shape (d, d).
        missing: Chance of a missing value by what is known of earlier ones, shape (K, d, 4).
        tables: Distribution of each categorical column, shape (K, codes).
        sticky: Chance that a category is that of the row before whatever the regime says, shape
            (categorical columns,).
    """

    initial: np.ndarray
    transition: np.ndarray
    means: np.ndarray
    covariances: np.ndarray
    memory: np.ndarray
    spread: np.ndarray
    missing: np.ndarray
    tables: tuple[np.ndarray, ...]
    sticky: np.ndarray

    def unknown(self, blank: np.ndarray) -> np.ndarray:
        """Covariance that the memory of these columns adds where there is none."""
        pull = self.memory.sum(axis=1) * blank
        return np.asarray(pull[:, None] * self.spread * pull)

    def drawn(
        self, lengths: np.ndarray, rng: np.random.Generator
    ) -> tuple[np.ndarray, list[np.ndarray]]:
        """Tables of given lengths: scores (tables, steps, d), and codes by categorical column."""
        tables, steps, columns = len(lengths), int(lengths.max()), self.means.shape[1]
        half = np.linalg.cholesky(self.covariances)
        spread = np.linalg.cholesky(floored(self.spread, 1e-6))
        unknown = rng.standard_normal((tables, columns)) @ spread.T * self.memory.sum(axis=1)
        scores = np.full((tables, steps, columns), np.nan)
        codes = [np.zeros((tables, steps), dtype=np.int64) for _ in self.tables]
        past = Past.none(tables, columns)
        regime = picked(np.tile(self.initial, (tables, 1)), rng)
        for step in range(steps):
            if step:
                regime = picked(self.transition[regime], rng)
            pulled = np.where(past.blank, unknown, (past.memory * self.memory).sum(axis=2))
            noise = np.einsum("uij,uj->ui", half[regime], rng.standard_normal((tables, columns)))
            values = np.clip(pulled + self.means[regime] + noise, -LARGEST, LARGEST)
            chance = np.take_along_axis(self.missing[regime], past.state[..., None], axis=2)[..., 0]
            values[rng.random(values.shape) < chance] = np.nan
            scores[:, step] = values
            past = past.after(values)
            for number, table in enumerate(self.tables):
                own = picked(table[regime], rng)
                stays = rng.random(tables) < (self.sticky[number] if step else 0.0)
                codes[number][:, step] = np.where(stays, codes[number][:, step - 1], own)
        return scores, codes


def emissions(model: Chain, rows: Rows, patterns: list[Pattern]) -> np.ndarray:
    """Log-likelihood of each row in each regime, given the rows before, shape (rows, K)."""
    number = len(model.initial)
    found = np.zeros((len(rows.scores), number))
    left = innovations(model, rows)
    for own, gone, blank in patterns:
        seen = ~gone
        if not seen.any():
            continue
        for k in range(number):
            variance = (model.covariances[k] + model.unknown(blank))[np.ix_(seen, seen)]
            half = np.linalg.cholesky(variance)
            scaled = np.linalg.solve(half, (left[own][:, seen] - model.means[k, seen]).T)
            constant = np.log(np.diag(half)).sum() + seen.sum() * math.log(2 * math.pi) / 2
            found[own, k] = -(scaled**2).sum(axis=0) / 2 - constant
    gone = np.isnan(rows.scores)
    for k in range(number):
        chance = model.missing[k][np.arange(gone.shape[1]), rows.state]
        found[:, k] += np.log(np.maximum(np.where(gone, chance, 1 - chance), 1e-12)).sum(axis=1)
    for table, sticky, codes, above in zip(
        model.tables, model.sticky, rows.codes, rows.codes_above, strict=True
    ):
        own_code = np.where(codes < 0, 1.0, table[:, codes])
        mixed = (1 - sticky) * own_code + sticky * (codes == above)
        found += np.log(np.where(above < 0, own_code, mixed)).T
    return found


def innovations(model: Chain, rows: Rows) -> np.ndarray:
    """What memory does not explain, shape (rows, columns)."""
    return np.asarray(rows.scores - (rows.memory * model.memory).sum(axis=2))


def posteriors(
    model: Chain, found: np.ndarray, lengths: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Forward and backward over all users at once.

    Args:
        model: The parameters.
        found: What `emissions` gives.
        lengths: Rows of each user.

    Returns:
        Chances of the regimes by row (rows, K), mean transitions by user (users, K, K), and the
        log-likelihood by user (users,).
    """
    users, steps, number = len(lengths), int(lengths.max()), found.shape[1]
    there = np.arange(steps) < lengths[:, None]
    padded = np.zeros((users, steps, number))
    padded[there] = found
    top = padded.max(axis=2)
    density = np.exp(padded - top[..., None])
    forward = np.empty((users, steps, number))
    scale = np.empty((users, steps))
    ahead = np.broadcast_to(model.initial, (users, number))
    for step in range(steps):
        joint = ahead * density[:, step]
        scale[:, step] = joint.sum(axis=1)
        forward[:, step] = joint / scale[:, step, None]
        ahead = forward[:, step] @ model.transition
    backward = np.ones((users, number))
    chances = np.empty((users, steps, number))
    moves = np.zeros((users, number, number))
    for step in range(steps - 1, -1, -1):
        backward[step >= lengths - 1] = 1.0
        both = forward[:, step] * backward
        chances[:, step] = both / both.sum(axis=1, keepdims=True)
        if step:
            message = density[:, step] * backward / scale[:, step, None]
            pair = forward[:, step - 1, :, None] * model.transition * message[:, None, :]
            pair /= np.maximum(pair.sum(axis=(1, 2), keepdims=True), 1e-300)
            moves += np.where((step < lengths)[:, None, None], pair, 0.0)
            backward = message @ model.transition.T
            backward /= backward.max(axis=1, keepdims=True)
    mean_moves = moves / np.maximum(lengths - 1, 1)[:, None, None]
    return chances[there], mean_moves, ((np.log(scale) + top) * there).sum(axis=1)


def picked(chances: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """One index for each row of `chances`."""
    upto = chances.cumsum(axis=1)
    return np.asarray(
        (rng.random(len(chances))[:, None] * upto[:, -1:] >= upto[:, :-1]).sum(axis=1)
    )


def floored(matrix: np.ndarray, least: float) -> np.ndarray:
    """The symmetric matrix (or matrices) with no eigenvalue below `least`."""
    values, vectors = np.linalg.eigh((matrix + np.swapaxes(matrix, -1, -2)) / 2)
    kept = vectors * np.maximum(values, least)[..., None, :]
    return np.asarray(kept @ np.swapaxes(vectors, -1, -2))
