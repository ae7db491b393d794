"""The rows that private fusion is read against: knowing nothing, and paying nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from panelbench import (
    SENSOR_STREAMS,
    Established,
    Estimates,
    Guarantee,
    Mechanism,
    PrivacyUnit,
    Role,
    Split,
)
from panelbench_fusion.feature import unfit
from panelbench_fusion.pipeline import check_weight, plan, streams
from panelbench_fusion.uniform import PUBLIC

if TYPE_CHECKING:
    from panelbench import Budget, Dataset, Schema


@dataclass(frozen=True, kw_only=True)
class Prior(Mechanism):
    """The mean state of the training windows, whatever the sensors report.

    Formal guarantee:
        No report of a test window is read, so nothing is spent. People in training windows are not
        protected.

    Attributes:
        by_step: The mean of each step of the window instead of one mean.
    """

    name: ClassVar[str] = "prior"
    kind: ClassVar[str] = SENSOR_STREAMS
    role: ClassVar[Role] = Role.BASELINE

    by_step: bool = False

    def release(
        self,
        dataset: Dataset,
        budget: Budget,
        *,
        rng: np.random.Generator,  # noqa: ARG002 - nothing is random here
    ) -> Estimates:
        """Repeat the training mean for every test window."""
        data = streams(dataset)
        known = data.state[data.episodes(Split.TRAIN)]
        steps = known.shape[1]
        mean = known.mean(axis=0) if self.by_step else np.full(steps, known.mean())
        tests = len(data.episodes(Split.TEST))
        return Estimates(
            estimate=np.broadcast_to(mean, (1, tests, steps)).copy(),
            spent=np.zeros(steps),
            guarantee=Guarantee(
                established=Established.SETTLED,
                unit=PrivacyUnit.SENSOR_TRAJECTORY,
                relation=budget.relation,
                public=PUBLIC,
                note="Reads no report of a test window.",
            ),
        )


@dataclass(frozen=True, kw_only=True)
class Nonprivate(Mechanism):
    """The feature and the causal linear filter of `uniform` without noise.

    Formal guarantee:
        None: the estimates are functions of the sums themselves.

    Attributes:
        count_weight: As in `Uniform`.
        values: As in `Uniform`.
    """

    name: ClassVar[str] = "nonprivate"
    kind: ClassVar[str] = SENSOR_STREAMS
    role: ClassVar[Role] = Role.REFERENCE

    count_weight: float | None = None
    values: tuple[str, ...] = ("speed",)

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", tuple(self.values))
        check_weight(self.count_weight)

    def supports(self, schema: Schema, budget: Budget) -> str | None:  # noqa: ARG002 - any budget
        """Needs the value columns with public bounds."""
        return unfit(schema, self.values)

    def release(
        self,
        dataset: Dataset,
        budget: Budget,
        *,
        rng: np.random.Generator,  # noqa: ARG002 - nothing is random here
    ) -> Estimates:
        """Fit on training windows, then filter the true sums of the test windows."""
        data = streams(dataset)
        steps = data.schema.max_rows
        chosen = plan(
            data,
            count_weight=self.count_weight,
            values=self.values,
            relation=budget.relation,
            gains_of=lambda _: np.ones(steps),
            noise_variance=0.0,
        )
        test = data.episodes(Split.TEST)
        sums = chosen.feature.sums(data.observations[test], data.present[test])
        return Estimates(
            estimate=chosen.filter.estimates(sums)[None],
            spent=np.full(steps, np.inf),
            guarantee=Guarantee(
                established=Established.NONE,
                unit=PrivacyUnit.SENSOR_TRAJECTORY,
                relation=budget.relation,
                public=PUBLIC,
                note="Not private: no noise.",
            ),
            info={
                "count_weight": chosen.feature.count_weight,
                "shrinkage": chosen.how.shrinkage,
                "ridge": chosen.how.ridge,
                "held_out_mse": chosen.held_out_mse,
            },
        )
