"""Channels with memory, for vehicles that come once and leave once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from panelbench_fusion.factor import fractional_difference, optimal_factor, scaled_to
from panelbench_fusion.linear import Channel, LinearFusion

if TYPE_CHECKING:
    from panelbench import NeighboringRelation
    from panelbench_fusion.model import Model

FIRST_RUN = " A sensor counts on its first run of steps only."


@dataclass(frozen=True, kw_only=True)
class MatrixFusion(LinearFusion):
    """Fusion of a filtered count, the filter optimised, beside gains for the other coordinates.

    A vehicle changes the count by 1 on one interval of steps, so differences over time cost less
    than levels. The count channel releases C N + W with C lower triangular, the others have one
    gain a step; C and the gains together minimise the error that a Gaussian model of training
    windows expects, after scaling so that the dearest change of one vehicle costs Q.

    Formal guarantee:
        Privacy unit: everything one sensor reports in one test window. Relation: the budget's.
        Enforced: a sensor contributes on its first run of consecutive steps in the window and is
        ignored afterwards (`feature.first_visit`), whatever it reports; so what it adds to the
        counts is the indicator 1_I of one interval I of steps (perhaps empty), and what it adds to
        another coordinate lies in -1..1 (add-or-remove-one) or 0..1 (replace-one) on I and is 0
        elsewhere. Sensitivity (squared, L2):
        add-or-remove-one: max over I of |C 1_I|^2 + sum over k in I of q_v,k. Replace-one: max
        over I and J of |C (1_I - 1_J)|^2 + sum over the union of I and J of q_v,k. Both are found
        by trying every interval and every pair (`intervals.dearest`) and are Q = 2 B_G / alpha up
        to rounding down. Public: as in `uniform`. Theorem: C and the gains are fixed before a
        protected report is read, so the release is one Gaussian mechanism with noise of standard
        deviation 1 and that sensitivity: mu-GDP with mu^2 = Q, hence (alpha, B_G)-RDP. Row k of C
        uses counts up to step k only. Estimates are post-processing.

    Attributes:
        iterations: Most iterations of L-BFGS in each of eight rounds.
        draws: As in `LinearFusion`.
        values: As in `LinearFusion`.
        trip_windows: As in `LinearFusion`.
    """

    name: ClassVar[str] = "mf"
    single_visit: ClassVar[bool] = True
    counts: ClassVar[str] = FIRST_RUN

    iterations: int = 15

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.iterations < 1:
            raise ValueError(f"iterations must be at least 1, got {self.iterations}.")

    def channel(
        self,
        model: Model,
        even: np.ndarray,  # noqa: ARG002 - the split is optimised with the rest
        total: float,
        relation: NeighboringRelation,
    ) -> Channel:
        """The optimised channel."""
        count, value_costs = optimal_factor(model, total, relation, iterations=self.iterations)
        channel = Channel(count=count, value_costs=value_costs)
        channel.info.update(expected_mse=model.error(channel.matrix)[0])
        return channel


@dataclass(frozen=True, kw_only=True)
class SquareRoot(LinearFusion):
    """Fusion of (1 - shift)^(1/2) of the count, the Toeplitz square root of prefix sums.

    The factorisation of Fichtenberger, Henzinger and Upadhyay 2023 for continual counting, applied
    to the increments of the count; other powers lie between `uniform` (0) and increments (1).

    Formal guarantee:
        As in `MatrixFusion`: visits are enforced, the sensitivity is found by trying every
        interval (add-or-remove-one) or pair of intervals (replace-one), the gains of the other
        coordinates included, and is Q^(1/2) up to rounding down.

    Attributes:
        power: Of the difference.
        draws: As in `LinearFusion`.
        values: As in `LinearFusion`.
        trip_windows: As in `LinearFusion`.
    """

    name: ClassVar[str] = "sqrt-mf"
    single_visit: ClassVar[bool] = True
    counts: ClassVar[str] = FIRST_RUN

    power: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.power <= 1:
            raise ValueError(f"power must lie in 0..1, got {self.power}.")

    def channel(
        self, model: Model, even: np.ndarray, total: float, relation: NeighboringRelation
    ) -> Channel:
        """The fractional difference, scaled exactly."""
        return _split(fractional_difference(model.steps, self.power), even, total, relation)


@dataclass(frozen=True, kw_only=True)
class Tree(LinearFusion):
    """Fusion of dyadic sums of the count's increments, one a step.

    The binary mechanism of Chan, Shi and Song 2011 and Dwork et al. 2010, with the nodes that
    prefix sums use: step k (from 1) releases the increments of the last 2^j steps, 2^j the largest
    power of two that divides k. The filter weighs them, which the original does not.

    Formal guarantee:
        As in `MatrixFusion`: visits are enforced and the sensitivity is found by trying every
        interval (add-or-remove-one) or pair of intervals (replace-one), the gains of the other
        coordinates included, and is Q^(1/2) up to rounding down.

    Attributes:
        draws: As in `LinearFusion`.
        values: As in `LinearFusion`.
        trip_windows: As in `LinearFusion`.
    """

    name: ClassVar[str] = "tree"
    single_visit: ClassVar[bool] = True
    counts: ClassVar[str] = FIRST_RUN

    def channel(
        self, model: Model, even: np.ndarray, total: float, relation: NeighboringRelation
    ) -> Channel:
        """Dyadic differences, scaled exactly."""
        return _split(dyadic_differences(model.steps), even, total, relation)


def dyadic_differences(steps: int) -> np.ndarray:
    """Row k - 1 takes S_k - S_(k - 2^j), 2^j the largest power of two that divides k; S_0 = 0."""
    count = np.eye(steps)
    for step in range(1, steps + 1):
        before = step - (step & -step)
        if before:
            count[step - 1, before - 1] = -1.0
    return count


def _split(
    count: np.ndarray, even: np.ndarray, total: float, relation: NeighboringRelation
) -> Channel:
    """C with a share of the budget, equal gains with the rest, then both scaled exactly.

    The shares are those of the best channel without memory where all steps spend the same.
    """
    steps = len(count)
    none = np.zeros((steps, len(even) - 1))
    count, _ = scaled_to(count, none, relation, total * even[0])
    count, value_costs = scaled_to(count, none + even[1:] * total / steps, relation, total)
    return Channel(count=count, value_costs=value_costs)
