"""How far a mechanism is from the least error that its class could have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from scipy.linalg import toeplitz

from panelbench import (
    SENSOR_STREAMS,
    DataError,
    Estimates,
    GaussianEvent,
    Metric,
    NeighboringRelation,
    Scale,
    Score,
    SensorStreams,
    Split,
)
from panelbench_fusion.bound import certified_temporal_bound
from panelbench_fusion.factor import EXPONENTS, optimal_factor
from panelbench_fusion.model import Model
from panelbench_fusion.schedule import certified_bound, optimal_costs

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from panelbench import Dataset, Release

MEMORYLESS, TEMPORAL = "memoryless", "temporal"
ROUNDS = 400
"""Iterations of the factor behind lb3: it is within 3 % of the best channel found from there on."""
COVERED = {"lb1": (MEMORYLESS,), "lb3": (TEMPORAL,)}


@dataclass(frozen=True, kw_only=True)
class GapToBound(Metric):
    """Mean squared error over a lower bound for the mechanism's class, less 1.

    `lb1`: the convex optimum over all gains without memory, Z_k = g_k S_k + W_k with the same total
    Q. `lb3`: the dual bound over every causal Gaussian
    channel with memory on the count under enforced single visits, add-or-remove-one. A bound
    holds for a Gaussian count, and for any count with the same second moments as long as channel
    and estimate are linear.

    It is given only where a bound covers the mechanism: the dataset tells the second moments of
    the count (`extra["moments"]`, simulators only), the state is that count and reports hold no
    value beside it, the mechanism states its class, its gains are fixed (those that depend on
    outputs are covered for a Gaussian count only, and no simulated count is one), and its ledger
    is Gaussian. Bounds from
    moments that were fitted to data could exceed what a mechanism reaches by luck of the windows,
    so there are none. A gap of 0.02 means 2 % above the bound; slightly below 0 is possible, since
    the error is a mean over finitely many windows (the intervals cover that). A release that is
    the truth itself has -1.
    """

    name: ClassVar[str] = "gap-to-bound"
    kind: ClassVar[str] = SENSOR_STREAMS
    components: ClassVar[Mapping[str, Scale]] = {
        "lb1": Scale(lower=-1.0, perfect=-1.0),
        "lb3": Scale(lower=-1.0, perfect=-1.0),
    }
    needs: ClassVar[str] = "a simulator that tells the second moments of its count"

    def score(
        self,
        reference: Dataset,
        release: Release,
        *,
        rng: np.random.Generator,  # noqa: ARG002 - nothing is random here
    ) -> Iterator[Score]:
        """The gap to each bound that covers the release; nothing where none does."""
        if not isinstance(reference, SensorStreams) or not isinstance(release, Estimates):
            raise DataError(
                f"gap-to-bound scores estimates, got {reference.kind} and {release.kind}."
            )
        total = _total(release)
        if total is None or "moments" not in reference.extra or reference.schema.numeric:
            return
        if release.spent.ndim > 1:  # gains that depend on outputs: not linear, and no Gaussian
            return
        model = _model(reference)
        truth = reference.state[reference.episodes(Split.TEST)]
        by_case = np.mean((release.estimate - truth) ** 2, axis=(0, 2))
        for component, classes in COVERED.items():
            if release.info.get("class") not in classes:
                continue
            if component == "lb1":
                bound = certified_bound(model, optimal_costs(model, total))
            elif release.guarantee.relation is NeighboringRelation.ADD_OR_REMOVE_ONE:
                count, _ = optimal_factor(
                    model, total, release.guarantee.relation, iterations=ROUNDS
                )
                bound = certified_temporal_bound(model, count, total, exponent=EXPONENTS[-1])
            else:
                continue
            cases = by_case / bound - 1
            yield Score(
                component=component,
                value=float(np.mean(cases)),
                cases=tuple(cases.tolist()),
                detail={"bound": bound},
            )


def _total(release: Estimates) -> float | None:
    """Q, what the ledger spends as a Gaussian-DP mu squared; None where it is not all Gaussian."""
    events = release.guarantee.ledger
    if not events or not all(isinstance(event, GaussianEvent) for event in events):
        return None
    return sum(
        event.count * (event.l2_sensitivity / event.stddev) ** 2
        for event in events
        if isinstance(event, GaussianEvent)
    )


def _model(reference: SensorStreams) -> Model:
    """The count as state and only sum, with the moments that the dataset tells."""
    covariance = toeplitz(reference.extra["moments"]["autocovariance"])
    return Model(
        variance=np.diag(covariance).copy(), of_sums=covariance, with_state=covariance.copy()
    )
