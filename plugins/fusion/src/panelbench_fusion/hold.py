"""Fusion at every few steps only, and coasting in between."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from panelbench_fusion.linear import Channel, LinearFusion

if TYPE_CHECKING:
    from panelbench import NeighboringRelation
    from panelbench_fusion.model import Model


@dataclass(frozen=True, kw_only=True)
class Hold(LinearFusion):
    """Fusion at steps 1, 1 + p, 1 + 2p, ... with equal gains; the filter predicts in between.

    Formal guarantee:
        Privacy unit, relation, public facts and theorem as in `OpenLoop`: step k spends q_k, the
        sum of its squared gains, which is Q / ceil(K / p) where there is a fusion and 0 elsewhere,
        and the L2 sensitivity of the whole is Q^(1/2).

    Attributes:
        period: p, steps from one fusion to the next; 1 is `uniform`.
        draws: As in `LinearFusion`.
        values: As in `LinearFusion`.
        trip_windows: As in `LinearFusion`.
    """

    name: ClassVar[str] = "hold"

    period: int = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.period < 1:
            raise ValueError(f"period must be at least 1 step, got {self.period}.")

    def channel(
        self,
        model: Model,
        even: np.ndarray,
        total: float,
        relation: NeighboringRelation,  # noqa: ARG002 - the cost is the same under both
    ) -> Channel:
        """Equal costs at every p-th step."""
        fused = np.arange(model.steps) % self.period == 0
        return Channel.memoryless(np.outer(fused, even) * total / fused.sum())
