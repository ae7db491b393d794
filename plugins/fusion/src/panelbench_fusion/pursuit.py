"""Mechanisms that decide from what they released where to spend next, in closed form."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

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
from panelbench.accounting import mu_allowed
from panelbench_fusion.channel import OnlineChannel
from panelbench_fusion.conditioning import Posterior
from panelbench_fusion.feature import unfit
from panelbench_fusion.gain import constant_gains
from panelbench_fusion.latent import latent_model
from panelbench_fusion.ledger import ROUNDED_DOWN, Ledger
from panelbench_fusion.note import guarantee_note
from panelbench_fusion.pipeline import check_weight, plan, streams
from panelbench_fusion.uniform import PUBLIC

if TYPE_CHECKING:
    from panelbench import Budget, Dataset, Schema
    from panelbench_fusion.estimator import Moments

RANK = 16
"""Latent variables of the belief; more change the error by less than one part in a hundred."""


class Decision:
    """Where to spend next, from what was released; one object for a release."""

    @abstractmethod
    def ask(self, k: int, tested: np.ndarray) -> np.ndarray:
        """Squared gains to ask for at step k, shape (paths).

        Args:
            k: The step, from 0.
            tested: What the charged test of step k released, shape (paths, size); 0 without one.
        """

    @abstractmethod
    def hear(self, k: int, gains: np.ndarray, outputs: np.ndarray, change: np.ndarray) -> None:
        """Told what step k released.

        Args:
            k: The step, from 0.
            gains: Applied gains, shape (paths).
            outputs: Fusion outputs, shape (paths, size).
            change: By how much they moved the estimate of the state, shape (paths).
        """


@dataclass(frozen=True, kw_only=True)
class Pursuit(Mechanism):
    """Fusion whose gains follow a closed-form rule on what was released before.

    Feature weights and regularisation are those of `uniform`. The estimate is the conditional mean
    under a Gaussian model with a few latent variables, of all outputs so far.

    Attributes:
        draws: Independent noise draws for each test window.
        count_weight: As in `Uniform`.
        values: Columns in the feature besides the count.
        trip_windows: Number of windows a trip touches, for the note.
    """

    kind: ClassVar[str] = SENSOR_STREAMS
    test_share: ClassVar[float] = 0.0
    """Part of the budget that goes to a test at every step, the same for each."""

    draws: int = 20
    count_weight: float | None = None
    values: tuple[str, ...] = ("speed",)
    trip_windows: int = 4

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", tuple(self.values))
        check_weight(self.count_weight)
        for name in ("draws", "trip_windows"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}.")

    def supports(self, schema: Schema, budget: Budget) -> str | None:
        """Needs the value columns with public bounds and a limited budget."""
        if budget.notion is Notion.UNLIMITED:
            return "needs a limited budget; `nonprivate` is the same without noise"
        return unfit(schema, self.values)

    @abstractmethod
    def decision(self, total: float, moments: Moments, paths: tuple[int, ...]) -> Decision:
        """The rule.

        Args:
            total: What releases may spend together, without the tests.
            moments: Of training and validation windows.
            paths: Shape of the paths.
        """

    def release(self, dataset: Dataset, budget: Budget, *, rng: np.random.Generator) -> Estimates:
        """Fit on training windows, then fuse the test windows step by step."""
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
        total = mu_allowed(budget) ** 2 * ROUNDED_DOWN
        model = latent_model(chosen.moments, ridge=chosen.how.ridge, rank=RANK)
        test = data.episodes(Split.TEST)
        paths = (self.draws, len(test))
        ledger = Ledger(
            total, l2_sensitivity=chosen.feature.l2_sensitivity(budget.relation), paths=paths
        )
        sums = chosen.feature.sums(data.observations[test], data.present[test])
        tests = OnlineChannel(sums, ledger, rng=rng)
        releases = OnlineChannel(sums, ledger, rng=rng)
        test_gain = np.full(paths, math.sqrt(total * self.test_share / steps))
        decision = self.decision(total * (1 - self.test_share), chosen.moments, paths)
        posterior = Posterior(model, paths)
        tested = np.zeros((*paths, chosen.feature.size))
        estimate = np.empty((*paths, steps))
        for k in range(steps):
            if self.test_share:
                tested, gains = tests.step(k, test_gain)
                posterior.update(k, gains, tested)
            before = posterior.estimate(k)
            outputs, gains = releases.step(k, np.sqrt(decision.ask(k, tested)))
            posterior.update(k, gains, outputs)
            estimate[..., k] = posterior.estimate(k)
            decision.hear(k, gains, outputs, estimate[..., k] - before)
        charged = np.stack(ledger.charged, axis=-1).reshape(*paths, steps, -1).sum(axis=-1)
        return Estimates(
            estimate=estimate,
            spent=charged,
            guarantee=Guarantee(
                established=Established.SETTLED,
                unit=PrivacyUnit.SENSOR_TRAJECTORY,
                relation=budget.relation,
                ledger=(GaussianEvent(stddev=1.0, l2_sensitivity=math.sqrt(total)),),
                public=PUBLIC,
                note=guarantee_note(
                    math.sqrt(total),
                    budget,
                    seconds=steps * data.step_seconds,
                    trip_windows=self.trip_windows,
                ),
            ),
            info={
                "class": "memoryless",
                "count_weight": chosen.feature.count_weight,
                "shrinkage": chosen.how.shrinkage,
                "ridge": chosen.how.ridge,
            },
        )
