"""What each quantity's values are as tokens, by marginals that were measured under the budget."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from panelbench.coders import UNITS_PER_DAY, Categories, Coder, Gaps, HourOfDay, numeric_edges
from panelbench.schema import ColumnKind
from panelbench_path import cumulative
from panelbench_path.layout import (
    BINS,
    FIRST_BIN,
    FIRST_CATEGORY,
    MISSING,
    SLOTS,
    VOCABULARY,
    bin_tokens,
)

if TYPE_CHECKING:
    from panelbench.flatten import Wide
    from panelbench.schema import Column, Schema

GRID = 128
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
        """Values at random inside the bins, by the measured marginal.

        With `matched`, the order of all values decides instead: the one that the share s of the
        weight lies below becomes the quantile s of the measured marginal.
        """
        there = tokens != MISSING
        at = np.searchsorted(bin_tokens(len(self.edges) - 1), tokens[there])
        place = at + rng.random(at.shape)
        if self.matched and len(place):
            order = np.argsort(place)
            weight = weights[there][order]
            share = np.empty(len(place))
            share[order] = (weight.cumsum() - weight / 2) / weight.sum()
        else:
            levels = np.interp(self.edges, self.grid, self.cdf)
            share = np.interp(place, np.arange(len(levels)), levels)
        values = np.full(tokens.shape, np.nan)
        values[there] = self._quantile(share)
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
        weights = np.broadcast_to(1.0 / lengths[:, None], there.shape)
        cells = {}
        for number, name in enumerate(self.names):
            own = tokens[..., number]
            values = np.zeros(own.shape)
            where = there.copy()
            if name == "time":
                where[:, 0] = False
                values[:, 0] = self.codes["hour"].decode(own[:, 0], weights[:, 0], rng)
            values[where] = self.codes[name].decode(own[where], weights[where], rng)
            kind = None if name == "time" else self.schema[name].kind
            cells[name] = values.astype(np.int64) if kind is ColumnKind.CATEGORICAL else values
        return cells


@dataclass(frozen=True, kw_only=True)
class Masses:
    """What the users add to each bin of one quantity, before noise.

    Attributes:
        name: As in `Codebook.codes`, or "length".
        masses: Of the ordered cells or the categories, shape (bins,).
        missing: Of missing values, for ordered cells that may be missing.
        grid: Edges of ordered cells; None where bins have no order.
    """

    name: str
    masses: np.ndarray
    missing: float | None
    grid: np.ndarray | None


def sensitivities(schema: Schema) -> dict[str, float]:
    """L2 sensitivity of what is measured, by name, under add-or-remove-one.

    Plain histograms have 1, cumulative ones that of their size, a share of missing values beside
    them included; under replace-one it is sqrt(2) times as much.
    """
    found = {"length": cumulative.l2_sensitivity(schema.max_rows - schema.min_rows + 1)}
    for column in schema.columns:
        ordered = column.kind is not ColumnKind.CATEGORICAL
        size = len(_grid(column)) - 1 if ordered else 0
        found[column.name] = cumulative.l2_sensitivity(size) if ordered else 1.0
    if not schema.regular:
        found["hour"] = 1.0
        found["time"] = cumulative.l2_sensitivity(_clock(schema)[1].size)
    return found


def masses(wide: Wide, schema: Schema) -> list[Masses]:
    """Histograms of all quantities, to each of which every user adds a mass of at most 1."""
    present = wide.present
    weight = present / np.maximum(wide.lengths, 1)[:, None]
    spread = np.arange(schema.min_rows, schema.max_rows + 2) - 0.5
    found = [
        Masses(
            name="length",
            masses=np.histogram(wide.lengths, bins=spread)[0].astype(np.float64),
            missing=None,
            grid=spread,
        )
    ]
    for column in schema.columns:
        values = wide.cells[column.name]
        if column.kind is ColumnKind.CATEGORICAL:
            coder = Categories(count=len(column.categories), nullable=column.nullable)
            codes = coder.encode(values)
            counts = np.bincount(codes[present], weights=weight[present], minlength=coder.size)
            found.append(Masses(name=column.name, masses=counts, missing=None, grid=None))
            continue
        grid = _grid(column)
        gone = np.isnan(values)
        at = np.clip(np.searchsorted(grid, values, side="right") - 1, 0, len(grid) - 2)
        use = present & ~gone
        counts = np.bincount(at[use], weights=weight[use], minlength=len(grid) - 1)
        missing = float(weight[present & gone].sum()) if column.nullable else None
        found.append(Masses(name=column.name, masses=counts, missing=missing, grid=grid))
    if not schema.regular:
        hour, gap = _clock(schema)
        first = np.bincount(hour.encode(wide.cells["time"][:, 0]), minlength=hour.size)
        found.append(Masses(name="hour", masses=first.astype(float), missing=None, grid=None))
        later = present[:, 1:] / np.maximum(wide.lengths - 1, 1)[:, None]
        gaps = gap.encode(wide.cells["time"][:, 1:])
        counts = np.bincount(
            gaps[present[:, 1:]], weights=later[present[:, 1:]], minlength=gap.size
        )
        found.append(
            Masses(name="time", masses=counts, missing=None, grid=np.arange(gap.size + 1.0))
        )
    return found


def _grid(column: Column) -> np.ndarray:
    return numeric_edges(
        float(column.lower or 0.0), float(column.upper or 0.0), bins=GRID, whole=column.integer
    )


def _clock(schema: Schema) -> tuple[HourOfDay, Gaps]:
    per_day = UNITS_PER_DAY[schema.time_unit]
    return HourOfDay(per_day=per_day), Gaps(per_day=per_day)


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Everything that is measured before training.

    Attributes:
        codebook: Of the cells.
        lengths: Share of each number of rows from the schema's least.
        users: Estimated number of users.
    """

    codebook: Codebook
    lengths: np.ndarray
    users: float


def measure(
    exact: list[Masses],
    schema: Schema,
    *,
    stddev_of: dict[str, float],
    rng: np.random.Generator,
    quantile: bool = True,
    matched: bool = True,
) -> Measured:
    """Add noise, and make codes of what comes out.

    Args:
        exact: What `masses` gives.
        schema: The schema.
        stddev_of: Standard deviation of the noise by name.
        rng: The source of randomness.
        quantile: Bins of equal share; else of equal width where there is anything.
        matched: See `Quantiles`.
    """
    codes: dict[str, Code] = {}
    totals, lengths = [], np.zeros(0)
    for part in exact:
        stddev = stddev_of[part.name]
        if part.grid is None:
            noisy = part.masses + stddev * rng.standard_normal(len(part.masses))
            totals.append(float(noisy.sum()))
            shares = np.maximum(noisy - stddev * (noisy < 2 * stddev), 0.0)
            shares = shares / shares.sum() if shares.any() else np.full(len(noisy), 1 / len(noisy))
            codes[part.name] = _listed(part.name, schema, shares)
            continue
        found = cumulative.measured(part.masses, stddev=stddev, rng=rng)
        missing = None
        total = found.total
        if part.missing is not None:
            gone = max(part.missing + stddev * float(rng.standard_normal()), 0.0)
            missing = gone / max(gone + found.total, 1.0)
            total += gone
        totals.append(total)
        if part.name == "length":
            lengths = found.shares
        elif part.name == "time":
            codes["time"] = _listed("time", schema, found.shares)
        else:
            codes[part.name] = Quantiles(
                grid=part.grid,
                cdf=found.cdf,
                edges=_edges(part.grid, found.cdf, schema[part.name].integer, quantile=quantile),
                missing=missing,
                whole=schema[part.name].integer,
                matched=matched,
            )
    return Measured(
        codebook=Codebook(schema=schema, codes=codes),
        lengths=lengths,
        users=max(float(np.median(totals)), 1.0),
    )


def _listed(name: str, schema: Schema, shares: np.ndarray) -> Listed:
    if name in ("hour", "time"):
        hour, gap = _clock(schema)
        coder: Coder = hour if name == "hour" else gap
        return Listed(coder=coder, listed=FIRST_BIN + np.arange(coder.size), measured=shares)
    column = schema[name]
    tokens = FIRST_CATEGORY + np.arange(len(column.categories))
    return Listed(
        coder=Categories(count=len(column.categories), nullable=column.nullable),
        listed=np.append(tokens, MISSING) if column.nullable else tokens,
        measured=shares,
    )


def _edges(grid: np.ndarray, cdf: np.ndarray, whole: bool, *, quantile: bool) -> np.ndarray:  # noqa: FBT001 - private
    """Edges of at most `BINS` bins over a measured distribution."""
    there = np.flatnonzero(np.diff(cdf) > 0)
    low, high = (there[0], there[-1] + 1) if len(there) else (0, len(grid) - 1)
    if not quantile:
        return numeric_edges(float(grid[low]), float(grid[high]), bins=BINS, whole=whole)
    levels = np.linspace(0, 1, BINS + 1)[1:-1]
    rising = np.unique(cdf[low : high + 1], return_index=True)[1] + low
    inner = np.interp(levels, cdf[rising], grid[rising])
    if whole:
        inner = np.floor(inner) + 0.5
    edges = np.concatenate([[grid[low]], inner, [grid[high]]])
    return np.unique(np.round(edges, 12))
