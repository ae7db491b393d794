"""What both mechanisms share: tables to the library's records and back, and its randomness."""

from __future__ import annotations

import math
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd

from panelbench import (
    USER_TABLES,
    DataError,
    Established,
    Guarantee,
    Mechanism,
    NeighboringRelation,
    PrivacyUnit,
    SyntheticTables,
    UserTables,
)
from panelbench.accounting import rho_allowed
from panelbench.binning import Binning, bounds_of, unfit
from panelbench.flatten import flatten, unflatten

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

    from panelbench import Budget, Dataset, Schema

NOTE = (
    "smartnoise-synth keeps no ledger. Its noise is drawn from numpy's seeded generator, not from "
    "OpenDP's, which cannot be seeded."
)


@contextmanager
def seeded(module: ModuleType, rng: np.random.Generator) -> Iterator[None]:
    """Let a module of the library draw from `rng`, and leave global state as it was."""
    before = np.random.get_state()  # noqa: NPY002 - the library draws from there
    noise = module.gaussian_noise

    def gaussian_noise(stddev: float, size: int | None = None) -> Any:  # noqa: ANN401 - as theirs
        return rng.normal(0.0, stddev, size)

    module.gaussian_noise = gaussian_noise  # type: ignore[attr-defined] # theirs
    np.random.seed(int(rng.integers(2**32)))  # noqa: NPY002 - likewise
    try:
        yield
    finally:
        module.gaussian_noise = noise  # type: ignore[attr-defined] # theirs
        np.random.set_state(before)  # noqa: NPY002 - likewise


@dataclass(frozen=True, kw_only=True)
class OfLibrary(Mechanism):
    """A mechanism of smartnoise-synth on the first L rows of every user.

    Attributes:
        horizon: Rows L of each user, cut to the schema's `max_rows`; users with fewer are left out.
        bins: Equal-width bins of a numeric column; whole numbers get at most one bin each.
        clip: "bounds" or "dp", as in `marginals/aim`.
        clip_share: Share of the budget (of rho) for `clip` "dp".
        tables: Number of tables to release; the model's total where unset.
        max_tables: Public upper limit to it.
    """

    kind: ClassVar[str] = USER_TABLES
    assumed: ClassVar[tuple[str, ...]] = ()

    horizon: int = 10
    bins: int = 32
    clip: str = "dp"
    clip_share: float = 0.1
    tables: int | None = None
    max_tables: int = 10_000

    def __post_init__(self) -> None:
        if self.clip not in ("bounds", "dp"):
            raise ValueError(f"clip must be 'bounds' or 'dp', got {self.clip!r}.")
        if not 0 < self.clip_share < 1:
            raise ValueError(f"clip_share must lie between 0 and 1, got {self.clip_share}.")
        for field in ("horizon", "bins", "max_tables"):
            if getattr(self, field) < 1:
                raise ValueError(f"{field} must be at least 1, got {getattr(self, field)}.")
        if self.tables is not None and self.tables < 1:
            raise ValueError(f"tables must be at least 1 or unset, got {self.tables}.")

    def supports(self, schema: Schema, budget: Budget) -> str | None:
        """Needs add-or-remove-one, a limited budget, public bounds and a known unit of time."""
        if budget.relation is not NeighboringRelation.ADD_OR_REMOVE_ONE:
            return "smartnoise-synth calibrates its noise for add-or-remove-one"
        return unfit(schema, budget, clip=self.clip)

    def fitted(
        self,
        data: Any,  # noqa: ANN401 - an mbi.Dataset
        rho: float,
        delta: float,
        rng: np.random.Generator,
    ) -> tuple[Any, float]:
        """The library's model as a function from a count to a frame, and its total.

        Args:
            data: Records with their domain, an `mbi.Dataset`.
            rho: What may be spent.
            delta: At which the library states epsilon.
            rng: The source of randomness.
        """
        raise NotImplementedError

    def release(
        self, dataset: Dataset, budget: Budget, *, rng: np.random.Generator
    ) -> SyntheticTables:
        """Flatten, bin, hand over, take back."""
        if not isinstance(dataset, UserTables):
            raise DataError(f"{self.name} needs user tables, got {dataset.kind}.")
        from mbi import Dataset as Records  # noqa: PLC0415 - jax starts threads
        from mbi import Domain  # noqa: PLC0415 - jax starts threads

        schema = dataset.schema
        rho = rho_allowed(budget)
        steps = min(self.horizon, schema.max_rows)
        wide = flatten(dataset.train, schema, steps=steps, pad=False)
        bounds, clipping = bounds_of(
            wide,
            schema,
            clip=self.clip,
            mu=math.sqrt(2 * self.clip_share * rho),
            l2_sensitivity=1.0,
            rng=rng,
        )
        binning = Binning.of(schema, steps=steps, bounds=bounds, bins=self.bins, pad=False)
        names = list(binning.coders)
        columns = [f"{name} {k}" for name in names for k in range(steps)]
        codes = np.concatenate([binning.encode(wide, name) for name in names], axis=1)
        sizes = [size for name in names for size in binning.sizes(name)]
        data = Records(pd.DataFrame(codes, columns=columns), Domain(columns, sizes))
        left = rho * (1 - self.clip_share * bool(clipping))
        sample, total = self.fitted(data, left, budget.delta, rng)
        count = self.tables or min(max(1, round(total)), self.max_tables)
        drawn = sample(count)[columns].to_numpy(dtype=np.int64)
        split = dict(zip(names, np.split(drawn, len(names), axis=1), strict=True))
        synthetic = binning.decode(split, np.full(count, steps), rng)
        return SyntheticTables(
            schema=schema,
            frame=unflatten(synthetic, schema),
            guarantee=Guarantee(
                established=Established.DECLARED,
                unit=PrivacyUnit.USER,
                relation=budget.relation,
                declared=budget,
                public=self.assumed,
                note=NOTE,
            ),
            info={"steps": steps, "bounds": {name: list(pair) for name, pair in bounds.items()}},
        )
