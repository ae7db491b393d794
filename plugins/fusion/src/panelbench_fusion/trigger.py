"""Fusion only when the estimate has become too uncertain, as anybody can compute."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from panelbench_fusion.linear import Channel, LinearFusion

if TYPE_CHECKING:
    from panelbench import NeighboringRelation
    from panelbench_fusion.model import Model

BISECTIONS = 30


@dataclass(frozen=True, kw_only=True)
class Trigger(LinearFusion):
    """Fusion where the predicted variance of the state exceeds a threshold, a few times in all.

    The variance is that of a Gaussian model given what was released before, so it is public and
    known beforehand; the threshold is the lowest that triggers at most `releases` times. Every
    release gets an equal part of the budget.

    Formal guarantee:
        Privacy unit, relation, public facts and theorem as in `OpenLoop`. The trigger sees the
        model and past gains only, so it costs nothing; releases spend Q / `releases` each, and
        what is left over where fewer are triggered is not spent.

    Attributes:
        releases: Most releases in a window.
        draws: As in `LinearFusion`.
        values: As in `LinearFusion`.
        trip_windows: As in `LinearFusion`.
    """

    name: ClassVar[str] = "trigger"

    releases: int = 20

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.releases < 1:
            raise ValueError(f"releases must be at least 1, got {self.releases}.")

    def channel(
        self,
        model: Model,
        even: np.ndarray,
        total: float,
        relation: NeighboringRelation,  # noqa: ARG002 - the cost is the same under both
    ) -> Channel:
        """The triggered steps of the lowest threshold that triggers few enough."""
        cost = even * total / self.releases
        low, high = 0.0, float(model.variance.max())
        chosen = triggered(model, cost, high)
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            found = triggered(model, cost, middle)
            if found.sum() > self.releases:
                low = middle
            else:
                high, chosen = middle, found
        channel = Channel.memoryless(np.outer(chosen, cost))
        channel.info.update(threshold=high, releases=int(chosen.sum()))
        return channel


def triggered(model: Model, cost: np.ndarray, threshold: float) -> np.ndarray:
    """At which steps the predicted variance of the state reaches the threshold; shape (steps,).

    Args:
        model: The Gaussian model.
        cost: Squared gains of a release, shape (size,).
        threshold: A variance.
    """
    steps, size = model.steps, model.size
    of_sums, with_state = model.of_sums.copy(), model.with_state.copy()
    variance = model.variance.copy()
    chosen = np.zeros(steps, dtype=bool)
    for k in range(steps):
        if variance[k] < threshold:
            continue
        chosen[k] = True
        for place in range(size):
            row = k * size + place
            column, state = of_sums[:, row].copy(), with_state[row].copy()
            weight = cost[place] / (1 + cost[place] * column[row])
            of_sums -= weight * np.outer(column, column)
            with_state -= weight * np.outer(column, state)
            variance -= weight * state**2
    return chosen
