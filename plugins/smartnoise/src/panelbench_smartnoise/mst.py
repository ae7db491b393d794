"""MST of smartnoise-synth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from panelbench.accounting import zcdp_epsilon
from panelbench_smartnoise.records import OfLibrary, seeded

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, kw_only=True)
class Mst(OfLibrary):
    """MST as smartnoise-synth has it, on the first L rows of every user.

    The library's `MSTSynthesizer` (McKenna, Miklau and Sheldon 2021, arXiv:2108.04978): one-way
    marginals, then two-way ones along a spanning tree chosen by the exponential mechanism.

    Formal guarantee:
        Privacy unit: one user with all rows. Relation: add-or-remove-one. Declared: the library
        spends rho-zCDP by its own account and keeps no ledger. Public: schema, parameters, and the
        number of users with at least L rows, which the library hands to its fit as it is. With
        `clip` "dp" the bounds of the bins are measured first, with the share `clip_share` of rho:
        to each histogram a user adds at most one count (L2 sensitivity 1).

    Attributes:
        horizon: Rows L of each user, cut to the schema's `max_rows`; users with fewer are left out.
        bins: Equal-width bins of a numeric column; whole numbers get at most one bin each.
        clip: "bounds" or "dp", as in `marginals/aim`.
        clip_share: Share of the budget (of rho) for `clip` "dp".
        tables: Number of tables to release; the model's total where unset.
        max_tables: Public upper limit to it.
    """

    name: ClassVar[str] = "mst"
    assumed: ClassVar[tuple[str, ...]] = ("number of users",)

    def fitted(
        self,
        data: Any,  # noqa: ANN401 - an mbi.Dataset
        rho: float,
        delta: float,
        rng: np.random.Generator,
    ) -> tuple[Any, float]:
        """As in `OfLibrary`."""
        from snsynth.mst import mst  # noqa: PLC0415 - torch and jax start threads

        with seeded(mst, rng):
            library = mst.MSTSynthesizer()
            library.MST(data, zcdp_epsilon(rho, delta), delta)

        def sample(count: int) -> Any:  # noqa: ANN401 - a frame
            with seeded(mst, rng):
                return library.undo_compress_fn(library.synthesizer.synthetic_data(rows=count)).df

        return sample, float(library.synthesizer.total)
