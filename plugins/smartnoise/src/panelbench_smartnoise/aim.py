"""AIM of smartnoise-synth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from panelbench_smartnoise.records import OfLibrary, seeded

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, kw_only=True)
class Aim(OfLibrary):
    """AIM as smartnoise-synth has it, on the first L rows of every user.

    The library's `AIMSynthesizer` (McKenna et al. 2022, arXiv:2201.12677) gets the records binned
    as for `marginals/aim`, with their public domain, so none of its own transformers, which learn
    categories from the data, is used.

    Formal guarantee:
        Privacy unit: one user with all rows. Relation: add-or-remove-one. Declared: the library
        spends rho-zCDP by its own account and keeps no ledger. With `clip` "dp" the bounds of the
        bins are measured first, with the share `clip_share` of rho: to each histogram a user adds
        at most one count (L2 sensitivity 1). Public: schema, parameters.

    Attributes:
        horizon: Rows L of each user, cut to the schema's `max_rows`; users with fewer are left out.
        bins: Equal-width bins of a numeric column; whole numbers get at most one bin each.
        clip: "bounds" or "dp", as in `marginals/aim`.
        clip_share: Share of the budget (of rho) for `clip` "dp".
        tables: Number of tables to release; the model's total where unset.
        max_tables: Public upper limit to it.
        degree: Variables of a workload marginal.
        max_cells: Marginals with more cells do not belong to the workload.
        max_marginals: Use a random part of the workload of this size; all where unset.
        max_model_size: As in the library, in MB.
        rounds: Rounds T that the first noise is sized for; 16 a variable where unset.
    """

    name: ClassVar[str] = "aim"

    degree: int = 2
    max_cells: int = 10_000
    max_marginals: int | None = None
    max_model_size: float = 10.0
    rounds: int | None = None

    def fitted(
        self,
        data: Any,  # noqa: ANN401 - an mbi.Dataset
        rho: float,
        delta: float,
        rng: np.random.Generator,
    ) -> tuple[Any, float]:
        """As in `OfLibrary`."""
        from snsynth.aim import aim  # noqa: PLC0415 - torch and jax start threads

        with seeded(aim, rng):
            library = aim.AIMSynthesizer(
                delta=delta, max_model_size=self.max_model_size, rounds=self.rounds
            )
            library.rho = rho  # what its `fit` computes from epsilon and delta
            workload = library.get_workload(
                data,
                degree=self.degree,
                max_cells=self.max_cells,
                num_marginals=self.max_marginals,
            )
            library.AIM(data, workload)

        def sample(count: int) -> Any:  # noqa: ANN401 - a frame
            with seeded(aim, rng):
                return library.synthesizer.synthetic_data(rows=count).df

        return sample, float(library.synthesizer.total)
