"""A channel with memory where a sensor passes once a window: in, or out, or neither."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from panelbench_fusion.estimator import MODEL
from panelbench_fusion.gain import ROUNDED_DOWN
from panelbench_fusion.linear import FixedChannel
from panelbench_fusion.model import Model
from panelbench_fusion.passage import (
    ARRIVALS,
    COUNT,
    FAR,
    VALUES,
    answers,
    dearest_change,
    passage_sums,
    supports,
)
from panelbench_fusion.passage_factor import optimal_answers

if TYPE_CHECKING:
    from panelbench import NeighboringRelation, SensorStreams
    from panelbench_fusion.estimator import Evidence
    from panelbench_fusion.feature import Feature


@dataclass(frozen=True, kw_only=True)
class PassageChannel:
    """Z = A S + W on the sums of `passage.passage_sums`.

    Attributes:
        steps: Steps in a window.
        matrix: A in time order, shape (steps * (1 + values), steps * (3 + values)).
        info: Facts for readers.
    """

    steps: int
    matrix: np.ndarray
    info: dict[str, Any] = field(default_factory=dict)

    @property
    def value_cost(self) -> float:
        """What the values of a sensor that is there all the time cost."""
        return float(answers(self.matrix, self.steps)[1].sum())


@dataclass(frozen=True, kw_only=True)
class Turnstile(FixedChannel[PassageChannel]):
    """Fusion of who stays, comes and goes, where every sensor passes at most once a window.

    Vehicles seldom come and go within one window of 20 s, so one that came is counted to the
    window's end, and one that was there counts until it goes; one that starts far from the exit
    counts all the time. Then a vehicle changes the count once at most, and no vehicle does both.
    So the channel answers to those who come, those who go and those far from the exit by different
    rows, each of which may spend the whole budget on its vehicles. Answers and the gains of the
    other coordinates are optimised for a Gaussian model of training windows.

    Formal guarantee:
        Privacy unit: everything one sensor reports in one test window. Relation: the budget's.
        Enforced, whatever a sensor reports (`passage.passages`): a sensor that counts at the first
        step counts until its first absence, or all the time where its position at the first step
        is in the first `far` of the public segment; one that first counts at step a > 0 counts
        from a to the end. Whether it counts depends on its own reports alone. So with K steps it
        adds to the sums one of 2 K + 1 known sequences of (counts, arrives, is far at the first
        step): that of `passage.supports`; and to another coordinate something in -1..1
        (add-or-remove-one) or 0..1 (replace-one) while it counts, 0 elsewhere.
        Sensitivity (squared, L2): let u_i be what the count rows of A make of sequence i and M_i
        the steps on which it counts. Add-or-remove-one: max over i of |u_i|^2 + sum over k in M_i
        of q_v,k. Replace-one: max over i and j of |u_i - u_j|^2 + sum over the union of M_i and
        M_j of q_v,k. Both are found by trying all (`passage.dearest_change`) on the matrix that is
        applied, after a check that it shows nothing else (`passage.answers`), and are
        Q = 2 B_G / alpha up to rounding down. Public: as in `uniform`. Theorem: A is fixed before
        a protected report is read, so the release is one Gaussian mechanism with noise of standard
        deviation 1 and that sensitivity: mu-GDP with mu^2 = Q, hence (alpha, B_G)-RDP. Row k of A
        uses sums up to step k only. Estimates are post-processing.

    Attributes:
        iterations: Most iterations of L-BFGS.
        position: Column that says how far a sensor has come; nothing is far where the schema has
            no such numeric column with public bounds.
        far: Share of the segment, from its entry, in which a sensor is far from the exit.
        draws: As in `FixedChannel`.
        values: As in `FixedChannel`.
        trip_windows: As in `FixedChannel`.
    """

    name: ClassVar[str] = "turnstile"
    counts: ClassVar[str] = (
        " A sensor that comes counts to the window's end, one that is there until its first "
        "absence, or all the time where it starts far from the exit."
    )

    iterations: int = 100
    position: str = "position"
    far: float = 0.25

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.iterations < 1:
            raise ValueError(f"iterations must be at least 1, got {self.iterations}.")
        if not 0 <= self.far <= 1:
            raise ValueError(f"far must be a share of the segment in 0..1, got {self.far}.")

    def sums(self, feature: Feature, data: SensorStreams, episodes: np.ndarray) -> np.ndarray:
        """What the channel acts on; see `passage.passage_sums`."""
        column, below = None, -math.inf
        for index, one in enumerate(data.schema.columns):
            if one.name == self.position and one.lower is not None and one.upper is not None:
                column, below = index, one.lower + self.far * (one.upper - one.lower)
        return passage_sums(
            feature,
            data.observations[episodes],
            data.present[episodes],
            position=column,
            far_below=below,
        )

    def choose(
        self, evidence: Evidence, total: float, relation: NeighboringRelation
    ) -> PassageChannel:
        """The optimised channel."""
        moments = evidence.moments(MODEL.shrinkage).ridged(MODEL.ridge)
        steps, size = moments.mean.shape[0], moments.mean.shape[1] - 1
        of_step = np.arange(steps) * size
        values = np.arange(VALUES, size)
        used = np.concatenate(
            [of_step + COUNT, of_step + ARRIVALS, [FAR], (of_step[:, None] + values).ravel()]
        )
        step = np.arange(steps)
        model = Model(
            variance=moments.covariance[step, 0, step, 0],
            of_sums=moments.of_sums[np.ix_(used, used)],
            with_state=moments.with_state[used],
        )
        found = optimal_answers(
            model,
            supports(steps),
            total,
            relation,
            values=len(values),
            iterations=self.iterations,
        )
        matrix = np.zeros((steps * (1 + len(values)), steps * size))
        matrix[:, used] = found.channel()
        cost, _ = dearest_change(*answers(matrix, steps), relation)
        matrix *= math.sqrt(total / cost) * ROUNDED_DOWN
        expected, _ = model.error(matrix[:, used])
        return PassageChannel(steps=steps, matrix=matrix, info={"expected_mse": expected})

    def spent(self, chosen: PassageChannel, relation: NeighboringRelation) -> np.ndarray:
        """What each step spends; see `passage.dearest_change`."""
        return dearest_change(*answers(chosen.matrix, chosen.steps), relation)[1]

    def class_of(self) -> str:
        """No bound covers it: those for channels with memory do not know who comes and goes."""
        return "passages"
