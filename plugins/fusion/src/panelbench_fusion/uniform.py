"""The classical mechanism: a constant fusion gain."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from panelbench import (
    SENSOR_STREAMS,
    Established,
    Estimates,
    GaussianEvent,
    Guarantee,
    Mechanism,
    Notion,
    PrivacyUnit,
    Split,
)
from panelbench_fusion.channel import fused
from panelbench_fusion.feature import unfit
from panelbench_fusion.gain import constant_gains, spent
from panelbench_fusion.note import guarantee_note
from panelbench_fusion.pipeline import check_weight, plan, streams

if TYPE_CHECKING:
    import numpy as np

    from panelbench import Budget, Dataset, Schema

PUBLIC = ("people in training and validation windows are not protected",)
"""Beyond the schema; entries are ranked only against others that assume the same."""


@dataclass(frozen=True, kw_only=True)
class Uniform(Mechanism):
    """Fusion with the constant gain that spends B_G / K at each of K steps.

    Section II and equation (17) of Weng and Nekouei 2026 (arXiv:2602.21525), as reconstructed:
    Z_k = g S_k + W_k with S_k the sum over present sensors of f = (w_c, w_v s), s the value scaled
    over the band of training reports and clipped beyond it, to -1..1 under add-or-remove-one and
    to 0..1 under replace-one, w_c^2 + w_v^2 = 1, and W_k
    standard normal. The estimate is the best linear function of Z_1 .. Z_k under moments of the
    training and validation windows. Weights, shrinkage and ridge are chosen by the error on such
    windows that are held out in turn.

    Formal guarantee:
        Privacy unit: everything one sensor reports in one test window. Relation: the budget's; the
        L2 sensitivity of S_k is 1 under both (`Feature.l2_sensitivity`). Public: the schema, the
        windows, and everything fitted on training and validation windows, whose people are not
        protected. Theorem: given the same gains, two neighboring windows give outputs that are
        normal with equal covariance and means at most g apart at each step, so the K steps compose
        to mu-GDP with mu^2 = K g^2 = 2 B_G / alpha, which is (alpha, B_G)-RDP for that alpha and
        every other with the same ratio. The gains come from `gain.constant_gains`, which sees the
        budget, the number of steps and the sensitivity. Estimates are post-processing. A sensor
        that reports in W windows is protected at W times B_G; the note prints both.

    The draws of `Estimates` are independent runs for the sake of evaluation; whoever publishes more
    than one pays for each. Noise comes from numpy's generator in floating point: good for a
    benchmark, not for deployment.

    Attributes:
        draws: Independent noise draws for each test window.
        count_weight: w_c in (0, 1]; chosen on training and validation windows where unset.
        values: Columns in the feature besides the count.
        trip_windows: Number of windows a trip touches, for the note.
    """

    name: ClassVar[str] = "uniform"
    kind: ClassVar[str] = SENSOR_STREAMS

    draws: int = 20
    count_weight: float | None = None
    values: tuple[str, ...] = ("speed",)
    trip_windows: int = 4

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", tuple(self.values))
        check_weight(self.count_weight)
        for field in ("draws", "trip_windows"):
            if getattr(self, field) < 1:
                raise ValueError(f"{field} must be at least 1, got {getattr(self, field)}.")

    def supports(self, schema: Schema, budget: Budget) -> str | None:
        """Needs the value columns with public bounds and a limited budget."""
        if budget.notion is Notion.UNLIMITED:
            return "needs a limited budget; `nonprivate` is the same without noise"
        return unfit(schema, self.values)

    def release(self, dataset: Dataset, budget: Budget, *, rng: np.random.Generator) -> Estimates:
        """Fit on training windows, then fuse the test windows and estimate."""
        data = streams(dataset)
        steps = data.schema.max_rows
        chosen = plan(
            data,
            count_weight=self.count_weight,
            values=self.values,
            relation=budget.relation,
            gains_of=lambda feature: constant_gains(
                budget, steps=steps, l2_sensitivity=feature.l2_sensitivity(budget.relation)
            ),
            noise_variance=1.0,
        )
        gains = chosen.gains
        l2_sensitivity = chosen.feature.l2_sensitivity(budget.relation)
        charged = spent(gains, l2_sensitivity=l2_sensitivity)
        test = data.episodes(Split.TEST)
        outputs = fused(
            chosen.feature.sums(data.observations[test], data.present[test]),
            gains,
            draws=self.draws,
            rng=rng,
        )
        event = GaussianEvent(
            stddev=1.0, l2_sensitivity=float(gains[0] * l2_sensitivity), count=steps
        )
        return Estimates(
            estimate=chosen.filter.estimates(outputs),
            spent=charged,
            guarantee=Guarantee(
                established=Established.SETTLED,
                unit=PrivacyUnit.SENSOR_TRAJECTORY,
                relation=budget.relation,
                ledger=(event,),
                public=PUBLIC,
                note=guarantee_note(
                    math.sqrt(float(charged.sum())),
                    budget,
                    seconds=steps * data.step_seconds,
                    trip_windows=self.trip_windows,
                ),
            ),
            info={
                "class": "memoryless",
                "gain": float(gains[0]),
                "count_weight": chosen.feature.count_weight,
                "shrinkage": chosen.how.shrinkage,
                "ridge": chosen.how.ridge,
                "held_out_mse": chosen.held_out_mse,
            },
        )
