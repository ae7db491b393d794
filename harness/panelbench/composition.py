"""Composes ledgers with dp-accounting: the only module that imports it, and late.

`accounting` asks here for everything that is not a ledger of Gaussian events alone.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from panelbench.privacy import (
    Event,
    ExponentialEvent,
    GaussianEvent,
    LaplaceEvent,
    NeighboringRelation,
    SampledGaussianEvent,
    ZeroConcentratedEvent,
)

if TYPE_CHECKING:
    from collections.abc import Callable


def composed(
    ledger: tuple[Event, ...], relation: NeighboringRelation, delta: float, alpha: float
) -> tuple[float, float | None]:
    """Settle a ledger with dp-accounting: the only place that makes its events.

    The ledger states true sensitivities under the declared relation, so an unsampled event depends
    on the ratio of noise to sensitivity alone and is handed over as add-or-remove with that ratio,
    whatever the relation. Handing the relation over as well would be wrong twice: the library's
    RDP accountant ignores it for Gaussians, its PLD accountant doubles the sensitivity.
    Sampled Gaussians are handed over with the clipping norm and the declared relation; the RDP
    accountant cannot do them under replace-one, so b_g is not known there.

    A vector with Laplace noise is dominated by one number with the same L1 sensitivity (shift one
    coordinate after the other; trade-off functions of shifted log-concave noise compose under
    group privacy to that of the summed shift). The exponential mechanism is handed to the PLD as
    any pure DP mechanism and to the RDP accountant as zCDP with rho = epsilon^2 / 8; only with such
    events can the latter give the smaller epsilon, so only then is it asked at many orders. What is
    known to be zCDP alone has no privacy loss distribution, so only the RDP accountant is asked.

    Returns:
        The smallest epsilon at delta that either accountant finds, and b_g at alpha or None.
        Infinity where the numbers are too large for the library.
    """
    ledger = _merged(ledger)
    zcdp = any(isinstance(event, ZeroConcentratedEvent) for event in ledger)
    epsilon = math.inf if zcdp else _or_infinity(lambda: _loss_epsilon(ledger, relation, delta))
    sampled = any(isinstance(event, SampledGaussianEvent) for event in ledger)
    if sampled and relation is NeighboringRelation.REPLACE_ONE:
        return epsilon, None
    selects = any(isinstance(event, ExponentialEvent) for event in ledger)
    if selects or zcdp:
        epsilon = min(epsilon, _or_infinity(lambda: _renyi_epsilon(ledger, delta)))
    return epsilon, _or_infinity(lambda: _renyi_bound(ledger, alpha))


def _or_infinity(figure: Callable[[], float]) -> float:
    """A figure that the library computes, infinite where it fails on what is hardly private."""
    try:
        value = figure()
    except (ArithmeticError, IndexError, MemoryError, ValueError):
        return math.inf
    return math.inf if math.isnan(value) else value


def _loss_epsilon(ledger: tuple[Event, ...], relation: NeighboringRelation, delta: float) -> float:
    from dp_accounting.pld import common  # noqa: PLC0415 - takes 1.7 s
    from dp_accounting.pld import privacy_loss_distribution as pld  # noqa: PLC0415 - takes 1.7 s
    from dp_accounting.privacy_accountant import (  # noqa: PLC0415 - takes 1.7 s
        NeighboringRelation as Relation,
    )

    own = {
        NeighboringRelation.ADD_OR_REMOVE_ONE: Relation.ADD_OR_REMOVE_ONE,
        NeighboringRelation.REPLACE_ONE: Relation.REPLACE_ONE,
    }[relation]
    width = _loss_width(ledger)
    loss = pld.identity(value_discretization_interval=width)
    for event in ledger:
        one: Any
        match event:
            case GaussianEvent():
                ratio = event.stddev / event.l2_sensitivity / math.sqrt(event.count)
                one = pld.from_gaussian_mechanism(ratio, value_discretization_interval=width)
                loss = loss.compose(one)
                continue
            case LaplaceEvent():
                ratio = event.scale / event.l1_sensitivity
                one = pld.from_laplace_mechanism(ratio, value_discretization_interval=width)
            case ExponentialEvent():
                pure = common.DifferentialPrivacyParameters(event.epsilon, 0.0)
                one = pld.from_privacy_parameters(pure, value_discretization_interval=width)
            case SampledGaussianEvent():
                one = pld.from_gaussian_mechanism(
                    event.stddev / event.clipping_norm,
                    sampling_prob=event.sampling_probability,
                    neighboring_relation=own,
                    value_discretization_interval=width,
                )
            case ZeroConcentratedEvent():
                return math.inf
        loss = loss.compose(one.self_compose(event.count))
    return float(loss.get_epsilon_for_delta(delta))


def _accountant(ledger: tuple[Event, ...], orders: list[float] | None) -> Any:  # noqa: ANN401 - the library is untyped
    from dp_accounting import dp_event  # noqa: PLC0415 - takes 1.7 s
    from dp_accounting.rdp import RdpAccountant  # noqa: PLC0415 - takes 1.7 s

    accountant = RdpAccountant(orders)
    for event in ledger:
        handed: Any
        match event:
            case GaussianEvent():
                handed = dp_event.GaussianDpEvent(event.stddev / event.l2_sensitivity)
            case LaplaceEvent():
                handed = dp_event.LaplaceDpEvent(event.scale / event.l1_sensitivity)
            case ExponentialEvent():
                handed = dp_event.ZCDpEvent(event.epsilon**2 / 8)
            case ZeroConcentratedEvent():
                handed = dp_event.ZCDpEvent(event.rho)
            case SampledGaussianEvent():
                handed = dp_event.PoissonSampledDpEvent(
                    event.sampling_probability,
                    dp_event.GaussianDpEvent(event.stddev / event.clipping_norm),
                )
        accountant.compose(handed, event.count)
    return accountant


def _renyi_epsilon(ledger: tuple[Event, ...], delta: float) -> float:
    return float(_accountant(ledger, None).get_epsilon(delta))


def _renyi_bound(ledger: tuple[Event, ...], alpha: float) -> float:
    return float(_accountant(ledger, [alpha]).rdp[0])


def _merged(ledger: tuple[Event, ...]) -> tuple[Event, ...]:
    """The same ledger in few events: all Gaussians as one, equal others counted together.

    Composition does not depend on the order, and composing thousands of events singly is slow.
    """
    squares = 0.0
    counts: dict[Event, int] = {}
    for event in ledger:
        if isinstance(event, GaussianEvent):
            squares += event.count * (event.l2_sensitivity / event.stddev) ** 2
        else:
            one = replace(event, count=1)
            counts[one] = counts.get(one, 0) + event.count
    others = tuple(replace(event, count=count) for event, count in counts.items())
    if not squares:
        return others
    return (GaussianEvent(stddev=1.0, l2_sensitivity=math.sqrt(squares)), *others)


def _loss_width(ledger: tuple[Event, ...]) -> float:
    """Discretisation of the privacy loss: 1e-4, wider where that would take millions of cells."""
    spread = 0.0
    for event in ledger:
        match event:
            case GaussianEvent():
                ratio = math.sqrt(event.count) * event.l2_sensitivity / event.stddev
                spread += ratio**2 / 2 + 10 * ratio
            case LaplaceEvent():
                spread += event.count * event.l1_sensitivity / event.scale
            case ExponentialEvent():
                spread += event.count * event.epsilon
            case SampledGaussianEvent():
                ratio = event.clipping_norm / event.stddev
                spread += 2 * ratio**2 + 20 * ratio
    return max(1e-4, spread / 1e6)
