"""From known windows to a trained system, and from a trained system to a release."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np
import torch

from panelbench import (
    Established,
    Estimates,
    GaussianEvent,
    Guarantee,
    PrivacyUnit,
    Split,
)
from panelbench.accounting import mu_allowed
from panelbench_fusion.belief import Filter
from panelbench_fusion.channel import OnlineChannel
from panelbench_fusion.checkpoint import NOWHERE, Shelf
from panelbench_fusion.estimator import (
    Moments,
    Regularisation,
    Windows,
    sample_moments,
    shrunk,
    stationary_moments,
)
from panelbench_fusion.filter_training import learnt_feature
from panelbench_fusion.latent import latent_model
from panelbench_fusion.ledger import ROUNDED_DOWN, Ledger
from panelbench_fusion.model import Model
from panelbench_fusion.networks import ResidualEstimator, initialise_pair
from panelbench_fusion.note import guarantee_note
from panelbench_fusion.policy import GainPolicy
from panelbench_fusion.rollout import ReleaseChannel, System
from panelbench_fusion.schedule import optimal_costs
from panelbench_fusion.training import Judge, Pool, best_device, generators, updates_for
from panelbench_fusion.warmstart import wishes

if TYPE_CHECKING:
    from panelbench import Budget, NeighboringRelation, SensorStreams
    from panelbench_fusion.pipeline import Plan
    from panelbench_fusion.tabled import TabledFeature

JUDGE_DRAWS = 20


class BoundedFeature(Protocol):
    """What a fused sum is made of."""

    def sums(self, observations: np.ndarray, present: np.ndarray) -> np.ndarray:
        """S, shape (..., size)."""
        ...

    def l2_sensitivity(self, relation: NeighboringRelation) -> float:
        """Largest L2 norm by which one sensor changes a step's sum."""
        ...


@dataclass(frozen=True, kw_only=True)
class Shape:
    """How large the parts of a system are, and where its policy starts.

    Attributes:
        rank: Latent variables of the closed-form belief.
        memory: Width of the GRU.
        width: Hidden width of the policy; 0 for a schedule alone.
        start: The schedule to start from.
    """

    rank: int
    memory: int
    width: int
    start: Literal["open-loop", "uniform"]


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """All that training needs, made from training and validation windows only.

    Attributes:
        system: Untrained, its closed form fitted on training windows.
        train: Training windows.
        judge: Chooses the checkpoint on validation windows.
        generator: For batches and noise of training.
        final: The closed form fitted on training and validation windows.
        shares: Of the budget, of the schedule the policy starts from, shape (steps,).
    """

    system: System
    train: Pool
    judge: Judge
    generator: torch.Generator
    final: Filter
    shares: np.ndarray

    def trained(self) -> System:
        """The system with its present weights and the final closed form, in double precision."""
        return replace(
            self.system,
            filter=self.final,
            policy=self.system.policy.cpu().double(),
            estimator=self.system.estimator.cpu().double(),
        )


def known_episodes(data: SensorStreams) -> tuple[np.ndarray, np.ndarray]:
    """Training and validation episodes; without the latter, the last fifth of the former."""
    train, validation = data.episodes(Split.TRAIN), data.episodes(Split.VALIDATION)
    if not len(validation):
        cut = len(train) - max(1, len(train) // 5)
        train, validation = train[:cut], train[cut:]
    return train, validation


def known_splits(data: SensorStreams, feature: BoundedFeature) -> tuple[Windows, Windows]:
    """Training and validation windows."""

    def windows(chosen: np.ndarray) -> Windows:
        sums = feature.sums(data.observations[chosen], data.present[chosen])
        return Windows(state=data.state[chosen], sums=sums)

    train, validation = known_episodes(data)
    return windows(train), windows(validation)


def learn_feature(
    data: SensorStreams,
    chosen: Plan,
    budget: Budget,
    *,
    updates: int,
    rng: np.random.Generator,
    shelf: Shelf = NOWHERE,
) -> tuple[TabledFeature, list[float]]:
    """`filter_training.learnt_feature` on training and validation windows, from a fixed one."""
    train, validation = (
        (data.state[some], data.observations[some], data.present[some])
        for some in known_episodes(data)
    )
    return learnt_feature(
        chosen.feature,
        train,
        validation,
        relation=budget.relation,
        gain=float(chosen.gains[0]),
        how=chosen.how,
        updates=updates_for(updates, train[0].size),
        generator=generators(rng, 1)[0],
        shelf=shelf,
    )


def _moments(windows: Windows, how: Regularisation) -> Moments:
    return shrunk(
        sample_moments(windows.state, windows.sums),
        stationary_moments(windows.state, windows.sums),
        how.shrinkage,
    )


def _filter(windows: Windows, how: Regularisation, rank: int, dtype: torch.dtype) -> Filter:
    return Filter.of(latent_model(_moments(windows, how), ridge=how.ridge, rank=rank), dtype)


def total_allowed(budget: Budget) -> float:
    """Q = mu^2, rounded down."""
    return mu_allowed(budget) ** 2 * ROUNDED_DOWN


def prepare(
    data: SensorStreams,
    feature: BoundedFeature,
    how: Regularisation,
    budget: Budget,
    shape: Shape,
    *,
    rng: np.random.Generator,
    shelf: Shelf = NOWHERE,
) -> Prepared:
    """Fit the closed form and start policy and estimator; test windows are not looked at.

    Policy, estimator and training are on the graphics card where torch finds one.
    """
    train, validation = known_splits(data, feature)
    both = Windows(
        state=np.concatenate([train.state, validation.state]),
        sums=np.concatenate([train.sums, validation.sums]),
    )
    total, sensitivity = total_allowed(budget), feature.l2_sensitivity(budget.relation)
    steps, size = train.sums.shape[1:]
    shares = np.full(steps, 1 / steps)
    schedule = np.zeros(steps)
    if shape.start == "open-loop":
        known = shelf.load("schedule")
        if known is None:
            smooth = replace(how, shrinkage=1.0)  # else the schedule follows accidents
            per_unit = _moments(train, smooth).weighted(np.full(size, 1 / sensitivity))
            model = Model.of(per_unit.ridged(how.ridge))
            costs = optimal_costs(model, total, shared=True)
            shares = costs[:, 0] / total
            shelf.save("schedule", {"shares": torch.as_tensor(shares)})
        else:
            shares = known["shares"].numpy()
        schedule = wishes(shares)
    policy = GainPolicy(
        torch.as_tensor(schedule, dtype=torch.float32), memory=shape.memory, width=shape.width
    )
    estimator = ResidualEstimator(size=size, memory=shape.memory)
    weights, judging, training = generators(rng, 3)
    initialise_pair(policy, estimator, weights)
    device = best_device()
    system = System(
        filter=_filter(train, how, shape.rank, torch.float32),
        policy=policy,
        estimator=estimator,
        total=total,
        l2_sensitivity=sensitivity,
    ).on(device)
    pools = Pool.of(train).on(device), Pool.of(validation).on(device)
    return Prepared(
        system=system,
        train=pools[0],
        judge=Judge(system, pools[1], draws=JUDGE_DRAWS, generator=judging),
        generator=training,
        final=_filter(both, how, shape.rank, torch.float64),
        shares=shares,
    )


def fuse(
    system: System, sums: np.ndarray, *, draws: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Algorithm 1 on protected sums.

    Args:
        system: Trained.
        sums: Shape (episodes, steps, size).
        draws: Independent runs.
        rng: The source of the noise.

    Returns:
        Estimates and charges, each of shape (draws, episodes, steps).
    """
    paths = (draws, len(sums))
    ledger = Ledger(system.total, l2_sensitivity=system.l2_sensitivity, paths=paths)
    channel = ReleaseChannel(OnlineChannel(sums, ledger, rng=rng))
    with torch.no_grad():
        trace = system.rollout(channel, paths)
    return torch.stack(trace.estimates, -1).numpy(), np.stack(ledger.charged, -1)


def release(
    data: SensorStreams,
    feature: BoundedFeature,
    system: System,
    budget: Budget,
    *,
    draws: int,
    trip_windows: int,
    public: tuple[str, ...],
    info: dict[str, object],
    rng: np.random.Generator,
) -> Estimates:
    """Fuse the test windows; the ledger is one Gaussian event with mu = sqrt(Q)."""
    test = data.episodes(Split.TEST)
    sums = feature.sums(data.observations[test], data.present[test])
    estimate, charged = fuse(system, sums, draws=draws, rng=rng)
    mu = math.sqrt(system.total)
    return Estimates(
        estimate=estimate,
        spent=charged,
        guarantee=Guarantee(
            established=Established.SETTLED,
            unit=PrivacyUnit.SENSOR_TRAJECTORY,
            relation=budget.relation,
            ledger=(GaussianEvent(stddev=1.0, l2_sensitivity=mu),),
            public=public,
            note=guarantee_note(
                mu,
                budget,
                seconds=data.schema.max_rows * data.step_seconds,
                trip_windows=trip_windows,
            ),
        ),
        info=info,
    )
