"""What each quantity's values are as tokens, by marginals that were measured under the budget."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from panelbench import ColumnKind
from panelbench_path.layout import MISSING, SLOTS, VOCABULARY, bin_tokens

if TYPE_CHECKING:
    from panelbench import Schema
    from panelbench.coders import Coder
    from panelbench.flatten import Wide

FLOOR = 1e-4
"""Smallest share that the model is started with for a token that its cell may hold."""


class Code(Protocol):
    """Values of one quantity as tokens, and back.

    Attributes:
        tokens: The tokens in order, missing values last.
        shares: Measured share of each, adding up to 1.
    """

    @property
    def tokens(self) -> np.ndarray:
        """The tokens in order, missing values last."""
        ...

    @property
    def shares(self) -> np.ndarray:
        """Measured share of each token."""
        ...

    def encode(self, values: np.ndarray) -> np.ndarray:
        """Tokens."""
        ...

    def decode(
        self, tokens: np.ndarray, weights: np.ndarray, rng: np.random.Generator
    ) -> np.ndarray:
        """Values; `weights` says how much each counts in the marginal."""
        ...


@dataclass(frozen=True, kw_only=True)
class Quantiles:
    """A numeric column in bins of equal measured share.

    Attributes:
        grid: Edges of the measured cells.
        cdf: Measured shares up to each of them.
        edges: Edges of the bins.
        missing: Measured share of missing values; None where there can be none.
        whole: Whether values are whole numbers.
        matched: Whether decoded values are moved, in order, to the measured marginal.
    """

    grid: np.ndarray
    cdf: np.ndarray
    edges: np.ndarray
    missing: float | None
    whole: bool
    matched: bool

    @property
    def tokens(self) -> np.ndarray:
        """The tokens in order, missing values last."""
        bins = bin_tokens(len(self.edges) - 1)
        return bins if self.missing is None else np.append(bins, MISSING)

    @property
    def shares(self) -> np.ndarray:
        """Measured share of each token."""
        bins: np.ndarray = np.diff(np.interp(self.edges, self.grid, self.cdf))
        if self.missing is None:
            return bins
        return np.append(bins * (1 - self.missing), self.missing)

    def encode(self, values: np.ndarray) -> np.ndarray:
        """Tokens; values beyond the outer edges go to the outer bins."""
        at = np.clip(np.searchsorted(self.edges, values, side="right") - 1, 0, len(self.edges) - 2)
        return np.where(np.isnan(values), MISSING, self.tokens[at])

    def decode(
        self, tokens: np.ndarray, weights: np.ndarray, rng: np.random.Generator
    ) -> np.ndarray:
        """Values at random inside the bins, by the measured marginal; see `placed`."""
        there = tokens != MISSING
        at = np.searchsorted(bin_tokens(len(self.edges) - 1), tokens[there])
        levels = np.interp(self.edges, self.grid, self.cdf)
        share = np.full(tokens.shape, np.nan)
        share[there] = np.interp(at + rng.random(at.shape), np.arange(len(levels)), levels)
        return self.placed(share, weights)

    def placed(self, share: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Values at these shares of the measured marginal, NaN where they are NaN.

        With `matched`, their order alone decides: the one that the share s of the weight lies below
        becomes the quantile s. Entries of weight 0 are not counted.
        """
        there = ~np.isnan(share) & (weights > 0)
        found = share[there]
        if self.matched and len(found):
            order = np.argsort(found)
            weight = weights[there][order]
            found[order] = (weight.cumsum() - weight / 2) / weight.sum()
        values = np.full(share.shape, np.nan)
        values[there] = self._quantile(found)
        return values

    def _quantile(self, share: np.ndarray) -> np.ndarray:
        cell = np.searchsorted(self.cdf[1:], share, side="left").clip(max=len(self.cdf) - 2)
        low, high = self.cdf[cell], self.cdf[cell + 1]
        inside = np.clip((share - low) / np.maximum(high - low, 1e-12), 0.0, 1.0)
        values = self.grid[cell] + inside * (self.grid[cell + 1] - self.grid[cell])
        if self.whole:
            first = np.ceil(self.grid[cell])
            last = np.floor(self.grid[cell + 1])
            values = np.clip(np.floor(values + 0.5), first, last)
        return np.asarray(values)


@dataclass(frozen=True, kw_only=True)
class Listed:
    """A quantity whose bins are public: categories, hours, gaps.

    Attributes:
        coder: From values to bin numbers.
        listed: Token of each bin.
        measured: Share of each bin.
    """

    coder: Coder
    listed: np.ndarray
    measured: np.ndarray

    @property
    def tokens(self) -> np.ndarray:
        """The tokens in order, missing values last."""
        return self.listed

    @property
    def shares(self) -> np.ndarray:
        """Measured share of each token."""
        return self.measured

    def encode(self, values: np.ndarray) -> np.ndarray:
        """Tokens."""
        tokens: np.ndarray = self.listed[self.coder.encode(values)]
        return tokens

    def decode(
        self,
        tokens: np.ndarray,
        weights: np.ndarray,  # noqa: ARG002 - nothing is matched here
        rng: np.random.Generator,
    ) -> np.ndarray:
        """Values."""
        sorter = np.argsort(self.listed)
        return self.coder.decode(sorter[np.searchsorted(self.listed, tokens, sorter=sorter)], rng)


def shares_of(there: np.ndarray) -> np.ndarray:
    """How much each value counts, shape (tables, steps): a table's own values add up to 1."""
    return np.asarray(there / np.maximum(there.sum(axis=1, keepdims=True), 1))


@dataclass(frozen=True, kw_only=True)
class Codebook:
    """The codes of all cells of a row.

    Attributes:
        schema: The schema.
        codes: By the name of the column; "hour" for the first row's time, "time" for later gaps.
    """

    schema: Schema
    codes: dict[str, Code]

    @property
    def names(self) -> tuple[str, ...]:
        """The cells of a row in order; a time comes first."""
        own = tuple(column.name for column in self.schema.columns)
        return own if self.schema.regular else ("time", *own)

    @property
    def clock(self) -> bool:
        """Whether there is a time."""
        return not self.schema.regular

    def bias(self) -> np.ndarray:
        """Logarithm of each token's share by slot, minus infinity where it cannot be."""
        slots = [self.codes[name] for name in self.names]
        if self.clock:
            slots.append(self.codes["hour"])
        bias = np.full((SLOTS, VOCABULARY), -np.inf)
        for number, code in enumerate(slots):
            shares = np.maximum(code.shares, FLOOR)
            bias[number, code.tokens] = np.log(shares / shares.sum())
        return bias

    def encode(self, wide: Wide) -> np.ndarray:
        """Tokens of shape (users, steps, cells); beyond the end of a table they mean nothing."""
        parts = []
        for name in self.names:
            tokens = self.codes[name].encode(wide.cells[name])
            if name == "time":
                tokens[:, 0] = self.codes["hour"].encode(wide.cells[name][:, 0])
            parts.append(tokens)
        return np.stack(parts, axis=-1).astype(np.int64)

    def decode(
        self, tokens: np.ndarray, lengths: np.ndarray, rng: np.random.Generator
    ) -> dict[str, np.ndarray]:
        """Values by name, shape (tables, steps); beyond the end of a table they mean nothing."""
        there = np.arange(tokens.shape[1]) < lengths[:, None]
        cells = {}
        for number, name in enumerate(self.names):
            own = tokens[..., number]
            values = np.zeros(own.shape)
            where = there.copy()
            if name == "time":
                where[:, 0] = False
                values[:, 0] = self.codes["hour"].decode(own[:, 0], there[:, 0] / 1.0, rng)
            weights = shares_of(where & (own != MISSING))
            values[where] = self.codes[name].decode(own[where], weights[where], rng)
            kind = None if name == "time" else self.schema[name].kind
            cells[name] = values.astype(np.int64) if kind is ColumnKind.CATEGORICAL else values
        return cells
