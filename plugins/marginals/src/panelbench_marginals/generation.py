"""Tables drawn from noisy pooled histograms, row after row and column after column."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np
from scipy.stats import norm

from panelbench_marginals.pooled import onto_simplex

if TYPE_CHECKING:
    from collections.abc import Mapping

FALSE_ALARM = 0.1
"""Chance that some length that nobody has survives."""
LENGTH_NOISE = 0.5
"""Noise of the length histogram over that of the others: every table hangs on it."""
SMOOTHING = 0.5
"""Noise standard deviations of mass with which a conditional leans on what is less specific."""


class Chains:
    """Post-processing of the histograms of `markov`: what is drawn from.

    Attributes:
        users: Estimated number of users.
    """

    def __init__(
        self, measured: Mapping[tuple[str, ...], np.ndarray], *, stddev: float, least: int
    ) -> None:
        self._stddev = stddev
        self._least = least
        lengths = measured["length",]
        masses = np.maximum(lengths.sum(axis=1), 0.0)
        self.users = float(masses.sum())
        if self.users < 1:
            self.users, masses = 1.0, np.full(len(lengths), 1.0 / len(lengths))
        self._masses = masses
        solid = np.where(
            lengths > LENGTH_NOISE * stddev * norm.isf(FALSE_ALARM / lengths.size), lengths, 0.0
        )
        self._clean = {
            key: np.stack(
                [onto_simplex(block, mass) for block, mass in zip(counts, masses, strict=True)]
            )
            for key, counts in {**measured, ("length",): solid}.items()
        }
        self._names = [key[1] for key in measured if key[0] == "first"]
        self._columns = [name for name in self._names if name != "time"]
        self._marginal = {name: self._marginal_of(name) for name in self._columns}
        self._order, self._parent = self._tree()
        self._next = {
            name: self._conditional(("next", name), self._marginal[name])
            for name in self._columns
            if ("next", name) in self._clean
        }
        self._after = {
            name: self._conditional(("after", name), self._next[name][:, None])
            for name in self._columns
            if ("after", name) in self._clean
        }
        self._given = {
            name: self._conditional_on(parent, name) for name, parent in self._parent.items()
        }

    def _marginal_of(self, name: str) -> np.ndarray:
        """Pooled distribution of a column, shape (types, size)."""
        found = [
            counts.sum(axis=2 if key[1] == name else 1)
            for key, counts in self._clean.items()
            if key[0] == "row" and name in key[1:]
        ]
        if not found:
            found = [self._clean["first", name]]
            found += [self._clean[k].sum(axis=1) for k in [("next", name)] if k in self._clean]
        return _normal(np.mean(found, axis=0) + 1e-9)

    def _conditional(self, key: tuple[str, ...], prior: np.ndarray) -> np.ndarray:
        """The last axis given all others, leaning on `prior` where there is little mass."""
        counts = self._clean[key]
        prior = prior[:, None] if key[0] == "next" else prior
        return _normal(counts + SMOOTHING * self._stddev * prior + 1e-12)

    def _pair(self, one: str, two: str) -> np.ndarray:
        """Counts of two columns within a row, shape (types, size of one, size of two)."""
        if ("row", one, two) in self._clean:
            return self._clean["row", one, two]
        return self._clean["row", two, one].swapaxes(1, 2)

    def _conditional_on(self, parent: str, name: str) -> np.ndarray:
        """How much likelier each bin of a column is given its parent's, (types, parent, own)."""
        own = self._marginal[name][:, None]
        given = _normal(self._pair(parent, name) + SMOOTHING * self._stddev * own + 1e-12)
        ratio: np.ndarray = given / own
        return ratio

    def _tree(self) -> tuple[list[str], dict[str, str]]:
        """Columns in order, and the one that each depends on most (Chow and Liu 1968)."""
        strength = {}
        for one, two in itertools.combinations(self._columns, 2):
            joint = self._pair(one, two).sum(axis=0)
            joint = (joint + 1e-9) / (joint + 1e-9).sum()
            apart = np.outer(joint.sum(axis=1), joint.sum(axis=0))
            strength[one, two] = strength[two, one] = float((joint * np.log(joint / apart)).sum())
        order, parent = self._columns[:1], {}
        while len(order) < len(self._columns):
            left = [name for name in self._columns if name not in order]
            pairs = [(strength[old, new], old, new) for old in order for new in left]
            _, old, new = max(pairs)
            parent[new] = old
            order.append(new)
        return order, parent

    def drawn(
        self, count: int, rng: np.random.Generator
    ) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Bins of each quantity, shape (count, longest length), and lengths."""
        kinds = rng.choice(len(self._masses), size=count, p=_normal(self._masses))
        lengths = self._least + _draw(_normal(self._clean["length",] + 1e-12)[kinds], rng)
        steps = self._least + self._clean["length",].shape[1] - 1
        codes = {name: np.zeros((count, steps), dtype=np.int64) for name in self._names}
        for k in range(int(lengths.max())):
            on = np.flatnonzero(lengths > k)
            for name in self._order:
                weight = self._own(codes[name][on], kinds[on], name, k)
                if name in self._parent:
                    above = codes[self._parent[name]][on, k]
                    weight = weight * self._given[name][kinds[on], above]
                codes[name][on, k] = _draw(_normal(weight), rng)
            if "time" in codes:
                key = ("first" if k == 0 else "next", "time")
                codes["time"][on, k] = _draw(_normal(self._clean[key] + 1e-12)[kinds[on]], rng)
        return codes, lengths

    def _own(self, so_far: np.ndarray, kinds: np.ndarray, name: str, k: int) -> np.ndarray:
        """Weights of a column's bins by its own past, shape (tables, size)."""
        if k == 0:
            prior = self._marginal[name]
            counts = self._clean["first", name] + SMOOTHING * self._stddev * prior
            return np.asarray(_normal(counts)[kinds])
        before = so_far[:, k - 1]
        if k > 1 and name in self._after:
            after = self._after[name]
            coarse = so_far[:, k - 2] * after.shape[1] // after.shape[2]
            return np.asarray(after[kinds, coarse, before])
        return np.asarray(self._next[name][kinds, before])


def _normal(weights: np.ndarray) -> np.ndarray:
    total = weights.sum(axis=-1, keepdims=True)
    found: np.ndarray = np.where(
        total > 0, weights / np.where(total > 0, total, 1), 1 / weights.shape[-1]
    )
    return found


def _draw(probability: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """One index for each row, by inversion."""
    cumulative = probability.cumsum(axis=1)[:, :-1]
    found: np.ndarray = (rng.random(len(probability))[:, None] >= cumulative).sum(axis=1)
    return found
