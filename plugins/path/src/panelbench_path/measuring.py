"""The marginals that are measured before training, and the codes that follow from them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from panelbench import ColumnKind, GaussianEvent, NeighboringRelation
from panelbench.accounting import mu_allowed
from panelbench.coders import UNITS_PER_DAY, Categories, Coder, Gaps, HourOfDay, numeric_edges
from panelbench_path import cumulative
from panelbench_path.codebook import Code, Codebook, Listed, Quantiles
from panelbench_path.layout import BINS, FIRST_BIN, FIRST_CATEGORY, MISSING

if TYPE_CHECKING:
    from panelbench import Budget, Column, Schema
    from panelbench.flatten import Wide

GRID = 128


@dataclass(frozen=True, kw_only=True)
class Masses:
    """What the users add to each bin of one quantity, before noise.

    Attributes:
        name: As in `Codebook.codes`, or "length".
        masses: Of the ordered cells or the categories, shape (bins,).
        missing: Of missing values, for ordered cells that may be missing. A user's masses are then
            shares of what that user has, so that a rare quantity is not lost in the noise.
        grid: Edges of ordered cells; None where bins have no order.
    """

    name: str
    masses: np.ndarray
    missing: float | None
    grid: np.ndarray | None


def sensitivities(schema: Schema) -> dict[str, float]:
    """L2 sensitivity of what is measured, by name, under add-or-remove-one.

    Plain histograms have 1, cumulative ones that of their size; a share of missing values, at most
    1, is measured with it. No entry is negative, so it is sqrt(2) times as much under replace-one.
    """
    found = {"length": cumulative.l2_sensitivity(schema.max_rows - schema.min_rows + 1)}
    for column in schema.columns:
        ordered = column.kind is not ColumnKind.CATEGORICAL
        size = len(_grid(column)) - 1 if ordered else 0
        own = cumulative.l2_sensitivity(size) if ordered else 1.0
        found[column.name] = math.hypot(own, ordered and column.nullable)
    if not schema.regular:
        found["hour"] = 1.0
        found["time"] = cumulative.l2_sensitivity(_clock(schema)[1].size)
    return found


def relation_factor(relation: NeighboringRelation) -> float:
    """How much more vectors without negative entries can differ under a relation, in L2 norm.

    Under replace-one two of them, each of norm at most s, are at most sqrt(2) s apart.
    """
    return math.sqrt(2) if relation is NeighboringRelation.REPLACE_ONE else 1.0


def noise(
    schema: Schema, budget: Budget, *, share: float
) -> tuple[dict[str, float], list[GaussianEvent]]:
    """Standard deviations by name, and what they are charged; 0 and nothing without a limit.

    Args:
        schema: The schema.
        budget: The budget of the whole release.
        share: Of it (of mu^2), in equal parts for all quantities.
    """
    mu = mu_allowed(budget)
    factor = relation_factor(budget.relation)
    own = {name: factor * value for name, value in sensitivities(schema).items()}
    if math.isinf(mu):
        return dict.fromkeys(own, 0.0), []
    scale = math.sqrt(len(own) / share) / mu
    events = [GaussianEvent(stddev=scale * v, l2_sensitivity=v) for v in own.values()]
    return {name: scale * value for name, value in own.items()}, events


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
        share = np.broadcast_to(1.0 / np.maximum(use.sum(axis=1), 1)[:, None], use.shape)
        counts = np.bincount(at[use], weights=share[use], minlength=len(grid) - 1)
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
        gone = None
        if part.missing is None:
            totals.append(found.total)
        else:
            gone = part.missing + stddev * float(rng.standard_normal())
        if part.name == "length":
            lengths = found.shares
        elif part.name == "time":
            codes["time"] = _listed("time", schema, found.shares)
        else:
            codes[part.name] = Quantiles(
                grid=part.grid,
                cdf=found.cdf,
                edges=_edges(part.grid, found.cdf, schema[part.name].integer, quantile=quantile),
                missing=gone,
                whole=schema[part.name].integer,
                matched=matched,
            )
    users = max(float(np.median(totals)), 1.0)
    for name, code in codes.items():
        if isinstance(code, Quantiles) and code.missing is not None:
            codes[name] = replace(code, missing=float(np.clip(code.missing / users, 0.0, 1.0)))
    return Measured(codebook=Codebook(schema=schema, codes=codes), lengths=lengths, users=users)


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
