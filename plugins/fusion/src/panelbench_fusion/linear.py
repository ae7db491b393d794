"""What all mechanisms with a fixed causal linear channel share."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

import numpy as np

from panelbench import (
    SENSOR_STREAMS,
    Established,
    Estimates,
    GaussianEvent,
    Guarantee,
    Mechanism,
    NeighboringRelation,
    Notion,
    PrivacyUnit,
    Split,
)
from panelbench.accounting import mu_allowed
from panelbench_fusion.channel import mixed
from panelbench_fusion.estimator import CANDIDATES, MODEL, USUAL, Evidence, Windows
from panelbench_fusion.factor import assembled
from panelbench_fusion.feature import unfit
from panelbench_fusion.gain import ROUNDED_DOWN
from panelbench_fusion.intervals import worst_spending
from panelbench_fusion.model import Model
from panelbench_fusion.note import guarantee_note
from panelbench_fusion.pipeline import COUNT_WEIGHTS, known_feature, streams
from panelbench_fusion.uniform import PUBLIC

if TYPE_CHECKING:
    from panelbench import Budget, Dataset, Schema, SensorStreams
    from panelbench_fusion.feature import Feature


class Releasing(Protocol):
    """What `LinearFusion` needs to know of a channel."""

    @property
    def info(self) -> dict[str, Any]:
        """Facts for readers."""

    @property
    def matrix(self) -> np.ndarray:
        """A in time order, rounded down."""

    @property
    def value_cost(self) -> float:
        """What coordinates other than counts spend on a sensor that is there all the time."""


Chosen = TypeVar("Chosen", bound=Releasing)


@dataclass(frozen=True, kw_only=True)
class Channel:
    """Z = A S + W: what is released, chosen before a protected report is read.

    Attributes:
        count: C, the rows that act on the counts, lower triangular, shape (steps, steps).
        value_costs: Squared gains of the other coordinates, shape (steps, size - 1).
        info: Facts for readers.
    """

    count: np.ndarray
    value_costs: np.ndarray
    info: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def memoryless(cls, costs: np.ndarray) -> Channel:
        """Gains from squared gains of shape (steps, size)."""
        return cls(count=np.diag(np.sqrt(costs[:, 0])), value_costs=costs[:, 1:])

    @property
    def matrix(self) -> np.ndarray:
        """A on unit sums in time order, shape (steps * size, steps * size); it rounds down."""
        return assembled(self.count, self.value_costs) * ROUNDED_DOWN

    @property
    def value_cost(self) -> float:
        """What the other coordinates spend on a sensor that is there all the time."""
        return float(self.value_costs.sum())

    def spent(self, relation: NeighboringRelation, *, single_visit: bool) -> np.ndarray:
        """What each step spends on the change that costs most, as a Gaussian-DP mu squared.

        Without enforced visits only a memoryless channel has a finite cost here: a sensor may
        change the sum of every step by a unit vector of the feature's ball, under both relations
        (`Feature.l2_sensitivity`), so step k spends C_kk^2 + q_v,k.
        """
        if single_visit:
            return worst_spending(self.count, self.value_costs.sum(axis=1), relation)
        gains = np.diag(self.count)
        if np.count_nonzero(self.count) > np.count_nonzero(gains):
            raise ValueError("A channel with memory needs enforced visits.")
        costs: np.ndarray = gains**2 + self.value_costs.sum(axis=1)
        return costs


@dataclass(frozen=True, kw_only=True)
class FixedChannel(Mechanism, Generic[Chosen]):
    """Fusion through a causal linear channel that is fixed before a protected report is read.

    Z = A S + W with S sums over present sensors, A fixed and causal, W standard normal. The
    estimate is the best linear function of Z_1 .. Z_k under moments of training and validation
    windows. A is chosen by a stationary model; the filter's regularisation has the least error on
    such windows that are held out in turn.

    Attributes:
        draws: Independent noise draws for each test window.
        values: Columns in the feature besides the count.
        trip_windows: Number of windows a trip touches, for the note.
    """

    kind: ClassVar[str] = SENSOR_STREAMS
    counts: ClassVar[str] = ""
    """A sentence for the note, where not all reports of a sensor count."""

    draws: int = 20
    values: tuple[str, ...] = ("speed",)
    trip_windows: int = 4

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", tuple(self.values))
        for name in ("draws", "trip_windows"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}.")

    def supports(self, schema: Schema, budget: Budget) -> str | None:
        """Needs the value columns with public bounds and a limited budget."""
        if budget.notion is Notion.UNLIMITED:
            return "needs a limited budget; `nonprivate` is the same without noise"
        return unfit(schema, self.values)

    def lag_steps(self) -> int:
        """Steps that an estimate may wait."""
        return 0

    @abstractmethod
    def sums(self, feature: Feature, data: SensorStreams, episodes: np.ndarray) -> np.ndarray:
        """What the channel acts on, shape (episodes, steps, size)."""

    @abstractmethod
    def choose(self, evidence: Evidence, total: float, relation: NeighboringRelation) -> Chosen:
        """Choose the channel.

        Args:
            evidence: Training and validation windows.
            total: Q, what the dearest change of one sensor may cost.
            relation: The neighboring relation.
        """

    @abstractmethod
    def spent(self, chosen: Chosen, relation: NeighboringRelation) -> np.ndarray:
        """What each step spends on the change that costs most, as a Gaussian-DP mu squared."""

    def class_of(self) -> str:
        """What lower bound covers it: "memoryless" or "temporal"."""
        return "temporal"

    def release(self, dataset: Dataset, budget: Budget, *, rng: np.random.Generator) -> Estimates:
        """Choose channel and filter on training windows, then fuse the test windows."""
        data = streams(dataset)
        steps, lag = data.schema.max_rows, self.lag_steps()
        mu = mu_allowed(budget)
        weight = 1 / math.sqrt(1 + len(self.values))
        feature = known_feature(
            data, count_weight=weight, values=self.values, relation=budget.relation
        )
        known = np.flatnonzero(data.split != Split.TEST)
        evidence = Evidence(Windows(state=data.state[known], sums=self.sums(feature, data, known)))
        chosen = self.choose(evidence, mu**2, budget.relation)
        matrix = chosen.matrix
        errors = evidence.held_out_mse(matrix, noise_variance=1.0, candidates=CANDIDATES, lag=lag)
        best = int(np.argmin(errors))
        how = CANDIDATES[best]
        estimator = evidence.fit(matrix, noise_variance=1.0, how=how, lag=lag)
        sums = self.sums(feature, data, data.episodes(Split.TEST))
        spent = self.spent(chosen, budget.relation) * ROUNDED_DOWN**2
        l2_sensitivity = math.sqrt(float(spent.sum()))
        return Estimates(
            estimate=estimator.estimates(mixed(sums, matrix, draws=self.draws, rng=rng)),
            spent=spent,
            guarantee=Guarantee(
                established=Established.SETTLED,
                unit=PrivacyUnit.SENSOR_TRAJECTORY,
                relation=budget.relation,
                ledger=(GaussianEvent(stddev=1.0, l2_sensitivity=l2_sensitivity),),
                public=PUBLIC + ((f"estimates may wait {lag} steps",) if lag else ()),
                note=guarantee_note(
                    l2_sensitivity,
                    budget,
                    seconds=steps * data.step_seconds,
                    trip_windows=self.trip_windows,
                )
                + self.counts,
            ),
            info={
                "class": self.class_of(),
                "value_share": chosen.value_cost / float(spent.sum()),
                "shrinkage": how.shrinkage,
                "ridge": how.ridge,
                "held_out_mse": errors[best],
                **chosen.info,
            },
        )


@dataclass(frozen=True, kw_only=True)
class LinearFusion(FixedChannel[Channel]):
    """Fusion of the sums over present sensors of (1, s_1, ...).

    s values are scaled over the band between two quantiles of training reports and clipped beyond
    it, to -1..1 under add-or-remove-one and to 0..1 under replace-one.

    Attributes:
        draws: As in `FixedChannel`.
        values: As in `FixedChannel`.
        trip_windows: As in `FixedChannel`.
    """

    single_visit: ClassVar[bool] = False
    """Whether only the first visit of a sensor counts."""

    @abstractmethod
    def channel(
        self, model: Model, even: np.ndarray, total: float, relation: NeighboringRelation
    ) -> Channel:
        """Choose the channel.

        Args:
            model: A Gaussian model of training and validation windows.
            even: Shares of `total` that go to the coordinates where all steps spend the same,
                shape (size,); the best of a few.
            total: Q, what the dearest change of one sensor may cost.
            relation: The neighboring relation.
        """

    def sums(self, feature: Feature, data: SensorStreams, episodes: np.ndarray) -> np.ndarray:
        """Unit sums, of first visits where they are enforced."""
        return feature.unit_sums(
            data.observations[episodes], data.present[episodes], single_visit=self.single_visit
        )

    def choose(self, evidence: Evidence, total: float, relation: NeighboringRelation) -> Channel:
        """Choose the channel by training and validation windows; see `channel`."""
        even, model = _model(evidence, total, lag=self.lag_steps())
        return self.channel(model, even, total, relation)

    def spent(self, chosen: Channel, relation: NeighboringRelation) -> np.ndarray:
        """What each step spends; see `Channel.spent`."""
        return chosen.spent(relation, single_visit=self.single_visit)

    def class_of(self) -> str:
        """By whether visits are enforced."""
        return "temporal" if self.single_visit else "memoryless"


def _model(evidence: Evidence, total: float, *, lag: int) -> tuple[np.ndarray, Model]:
    """Shares of the coordinates and a model, by the held-out error of even gains."""
    _, steps, size = evidence.windows.sums.shape
    shares = [np.ones(1)]
    if size > 1:
        values = [(1 - weight**2) / (size - 1) for weight in COUNT_WEIGHTS]
        shares = [np.array([1 - value * (size - 1)] + [value] * (size - 1)) for value in values]

    def even(share: np.ndarray) -> np.ndarray:
        return np.diag(np.tile(np.sqrt(total / steps * share), steps))

    usual = [
        evidence.held_out_mse(even(share), noise_variance=1.0, candidates=(USUAL,), lag=lag)
        for share in shares
    ]
    best = shares[int(np.argmin(usual))]
    return best, Model.of(evidence.moments(MODEL.shrinkage).ridged(MODEL.ridge), lag=lag)
