"""The best fixed schedule for a Gaussian model: the honest competitor of an adaptive one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from panelbench_fusion.linear import Channel, LinearFusion
from panelbench_fusion.schedule import certified_bound, optimal_costs

if TYPE_CHECKING:
    import numpy as np

    from panelbench import NeighboringRelation
    from panelbench_fusion.model import Model


@dataclass(frozen=True, kw_only=True)
class OpenLoop(LinearFusion):
    """Fusion with gains optimised offline, a gain for each step and coordinate, then fixed.

    The expected error under a stationary Gaussian model of training windows is convex in the
    squared gains; L-BFGS over shares of the budget finds the minimum. For a Gaussian state no
    closed-loop policy of the form Z_k = G_k S_k + W_k does better: the posterior covariance does
    not depend on the outputs, and by Jensen a random schedule is no better than its mean.

    Formal guarantee:
        Privacy unit: everything one sensor reports in one test window. Relation: the budget's.
        Sensitivity: neighbors differ in one sensor, whose f = (1, s_1, ...) has values in -1..1, so
        G_k S_k moves by at most |G_k f| in L2 norm, and |G_k f|^2 <= q_k, the sum of the squared
        gains of step k, under add-or-remove-one. Under replace-one values lie in 0..1: two present
        reports differ in the values only, by at most 1 each, and a present and an absent one by f,
        which is q_k again.
        Public: as in `uniform`. Theorem: the gains are fixed, so the whole release is one Gaussian
        mechanism with L2 sensitivity (sum of q_k)^(1/2) <= (2 B_G / alpha)^(1/2), which is mu-GDP
        for that mu, hence (alpha, B_G)-RDP. Estimates are post-processing.

    Attributes:
        draws: As in `LinearFusion`.
        values: As in `LinearFusion`.
        trip_windows: As in `LinearFusion`.
    """

    name: ClassVar[str] = "open-loop"

    def channel(
        self,
        model: Model,
        even: np.ndarray,  # noqa: ARG002 - every step has its own
        total: float,
        relation: NeighboringRelation,  # noqa: ARG002 - the cost is the same under both
    ) -> Channel:
        """The convex optimum."""
        costs = optimal_costs(model, total)
        channel = Channel.memoryless(costs)
        expected, _ = model.error(channel.matrix)
        channel.info.update(expected_mse=expected, expected_least=certified_bound(model, costs))
        return channel
