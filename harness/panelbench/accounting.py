"""What follows from a budget or a ledger: conversions, calibrated noise, settled guarantees.

The Gaussian mechanism is handled exactly (mu-GDP): a ledger of Gaussian events whose ratios of L2
sensitivity to standard deviation are r_1, r_2, ... composes, adaptively too, to mu-GDP with
mu^2 = r_1^2 + r_2^2 + ..., which is at once (alpha, alpha mu^2 / 2)-RDP for every order, zCDP with
rho = mu^2 / 2 and (epsilon, delta)-DP along one exact curve (Balle and Wang 2018). Everything else
goes through dp-accounting behind one adapter.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from panelbench.composition import composed
from panelbench.conversions import (
    crossing,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_mu,
    renyi_epsilon,
    renyi_epsilon_mironov,
    zcdp_epsilon,
)
from panelbench.errors import BudgetError
from panelbench.privacy import (
    Budget,
    Established,
    Event,
    ExponentialEvent,
    GaussianEvent,
    Guarantee,
    LaplaceEvent,
    NeighboringRelation,
    Notion,
    PrivacyUnit,
    SampledGaussianEvent,
    ZeroConcentratedEvent,
)

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "Figures",
    "calibrate",
    "equivalents",
    "excess",
    "gaussian_delta",
    "gaussian_epsilon",
    "gaussian_mu",
    "gaussian_stddev",
    "mu_allowed",
    "renyi_epsilon",
    "renyi_epsilon_mironov",
    "rho_allowed",
    "settle",
    "zcdp_epsilon",
]

TOLERANCE = 1e-9
"""Relative excess over a budget that is put down to floating point."""


def mu_allowed(budget: Budget) -> float:
    """The largest mu such that Gaussian events that compose to mu-GDP satisfy `budget`.

    Exact in every notion; infinite where the budget is unlimited.

    >>> mu_allowed(Budget.renyi_dp(2.0, 8.0))
    2.8284271247461903
    """
    match budget:
        case Budget(notion=Notion.APPROXIMATE_DP, epsilon=float() | int() as epsilon):
            return gaussian_mu(epsilon, budget.delta)
        case Budget(notion=Notion.RENYI_DP, b_g=float() | int() as b_g):
            return math.sqrt(2 * b_g / budget.alpha)
        case Budget(notion=Notion.ZERO_CONCENTRATED_DP, rho=float() | int() as rho):
            return math.sqrt(2 * rho)
        case _:
            return math.inf


def rho_allowed(budget: Budget) -> float:
    """The largest rho such that a rho-zCDP mechanism satisfies `budget`; infinite if unlimited.

    Under (epsilon, delta) a little less than `mu_allowed` squared over 2, which holds for Gaussian
    events alone.

    >>> round(rho_allowed(Budget.approximate_dp(5.98, 1e-5)), 2)
    0.75
    """
    match budget:
        case Budget(notion=Notion.APPROXIMATE_DP, epsilon=float() | int() as epsilon):
            delta = budget.delta
            lower, upper = -80.0, math.log(mu_allowed(budget) ** 2)
            for _ in range(80):
                middle = (lower + upper) / 2
                fits = zcdp_epsilon(math.exp(middle), delta) <= epsilon
                lower, upper = (middle, upper) if fits else (lower, middle)
            return math.exp(lower)
        case _:
            return mu_allowed(budget) ** 2 / 2


def gaussian_stddev(budget: Budget, *, l2_sensitivity: float, count: int = 1) -> float:
    """Standard deviation with which `count` Gaussian releases together spend `budget`.

    Args:
        budget: What may be spent; an unlimited one needs no noise and gives 0.
        l2_sensitivity: The true L2 sensitivity of each release under the budget's relation.
        count: How many releases there are.
    """
    return l2_sensitivity * math.sqrt(count) / mu_allowed(budget)


@dataclass(frozen=True, kw_only=True)
class Figures:
    """One guarantee in every notion that is known for it; infinite where there is none.

    Attributes:
        epsilon: Smallest known epsilon at `delta`; exact for Gaussian ledgers.
        delta: The delta of all three epsilons.
        alpha: The order of `b_g`.
        b_g: Bound on the Renyi divergence of order `alpha`; None where not known.
        rho: zCDP; None where not known.
        mu: Gaussian DP; None for ledgers that are not all Gaussian.
        epsilon_single_order: `renyi_epsilon` of (alpha, b_g), as papers on RDP print it.
        epsilon_zcdp: `zcdp_epsilon` of rho.
    """

    epsilon: float
    delta: float
    alpha: float
    b_g: float | None = None
    rho: float | None = None
    mu: float | None = None
    epsilon_single_order: float | None = None
    epsilon_zcdp: float | None = None


def _figures(
    epsilon: float,
    delta: float,
    alpha: float,
    *,
    b_g: float | None = None,
    rho: float | None = None,
    mu: float | None = None,
) -> Figures:
    return Figures(
        epsilon=epsilon, delta=delta, alpha=alpha, b_g=b_g, rho=rho, mu=mu,
        epsilon_single_order=None if b_g is None else renyi_epsilon(alpha, b_g, delta),
        epsilon_zcdp=None if rho is None else zcdp_epsilon(rho, delta),
    )  # fmt: skip


def _gaussian_figures(mu: float, delta: float, alpha: float) -> Figures:
    if mu == 0:
        return Figures(
            epsilon=0.0, delta=delta, alpha=alpha, b_g=0.0, rho=0.0, mu=0.0,
            epsilon_single_order=0.0, epsilon_zcdp=0.0,
        )  # fmt: skip
    return _figures(
        gaussian_epsilon(mu, delta), delta, alpha, b_g=alpha * mu**2 / 2, rho=mu**2 / 2, mu=mu
    )


def equivalents(budget: Budget) -> Figures:
    """The budget in every notion, by the Gaussian mechanism that spends it exactly.

    Only the notion in which a budget is stated binds; the other figures are those that a Gaussian
    mechanism has when it spends the budget to the last drop. Other mechanisms within the same
    budget may have larger ones.
    """
    figures = _gaussian_figures(mu_allowed(budget), budget.delta, budget.alpha)
    stated = {"epsilon": budget.epsilon, "b_g": budget.b_g, "rho": budget.rho}
    return replace(figures, **{name: v for name, v in stated.items() if v is not None})


def settle(guarantee: Guarantee, *, delta: float, alpha: float) -> Figures:
    """Recompute the numbers of a guarantee from its ledger.

    Args:
        guarantee: Ledgers are settled, declared budgets are converted where a theorem allows it,
            and what is not private gets infinities.
        delta: The delta at which epsilon is wanted. A declared (epsilon, delta) keeps its own.
        alpha: The order at which b_g is wanted.

    Raises:
        BudgetError: For a ledger that no accountant here can settle.
    """
    if guarantee.declared is not None:
        return _declared_figures(guarantee.declared, delta, alpha)
    if guarantee.established is Established.NONE:
        return _gaussian_figures(math.inf, delta, alpha)
    return _settle_ledger(guarantee.ledger, guarantee.relation, delta, alpha)


def _declared_figures(declared: Budget, delta: float, alpha: float) -> Figures:
    if declared.notion is Notion.APPROXIMATE_DP and declared.epsilon is not None:
        return _figures(declared.epsilon, declared.delta, alpha)
    if declared.notion is Notion.RENYI_DP and declared.b_g is not None:
        epsilon = renyi_epsilon(declared.alpha, declared.b_g, delta)
        known = alpha <= declared.alpha  # the Renyi divergence grows with its order
        return _figures(epsilon, delta, alpha, b_g=declared.b_g if known else None)
    if declared.rho is not None:
        epsilon = zcdp_epsilon(declared.rho, delta)
        return _figures(epsilon, delta, alpha, b_g=alpha * declared.rho, rho=declared.rho)
    return _gaussian_figures(math.inf, delta, alpha)


@lru_cache(maxsize=256)
def _settle_ledger(
    ledger: tuple[Event, ...], relation: NeighboringRelation, delta: float, alpha: float
) -> Figures:
    gaussian = [event for event in ledger if isinstance(event, GaussianEvent)]
    if len(gaussian) == len(ledger):
        squares = (e.count * (e.l2_sensitivity / e.stddev) ** 2 for e in gaussian)
        return _gaussian_figures(math.sqrt(math.fsum(squares)), delta, alpha)
    rhos = [_rho(event) for event in ledger]
    rho = None if None in rhos else math.fsum(r for r in rhos if r is not None)
    if rho is not None and any(isinstance(event, ZeroConcentratedEvent) for event in ledger):
        return _figures(zcdp_epsilon(rho, delta), delta, alpha, b_g=alpha * rho, rho=rho)
    epsilon, b_g = composed(ledger, relation, delta, alpha)
    if rho is not None:
        epsilon = min(epsilon, zcdp_epsilon(rho, delta))
        b_g = alpha * rho if b_g is None else min(b_g, alpha * rho)
    return _figures(epsilon, delta, alpha, b_g=b_g, rho=rho)


def _rho(event: Event) -> float | None:
    """The zCDP parameter of an event, where it has one."""
    match event:
        case GaussianEvent():
            return event.count * (event.l2_sensitivity / event.stddev) ** 2 / 2
        case LaplaceEvent():  # Bun and Steinke 2016, Proposition 3
            return event.count * (event.l1_sensitivity / event.scale) ** 2 / 2
        case ExponentialEvent():  # bounded range: Cesar and Rogers 2021, Lemma 3.4
            return event.count * event.epsilon**2 / 8
        case ZeroConcentratedEvent():
            return event.count * event.rho
        case SampledGaussianEvent():
            return None


def excess(guarantee: Guarantee, budget: Budget, *, unit: PrivacyUnit) -> str | None:
    """None if the guarantee satisfies the budget, otherwise one sentence that says why not.

    Compared in the budget's own notion, under its relation and for the privacy unit `unit`.
    """
    if budget.notion is Notion.UNLIMITED:
        return None
    mismatch = _mismatch(guarantee, budget, unit)
    if mismatch is not None:
        return mismatch
    figures = settle(guarantee, delta=budget.delta, alpha=budget.alpha)
    if figures.delta > budget.delta * (1 + TOLERANCE):
        return f"The guarantee has delta = {figures.delta}, the budget allows {budget.delta}."
    name, allowed, spent = _stated(figures, budget)
    if allowed is None or spent is None:
        return f"No {name} is known for the guarantee, but the budget is stated in it."
    if figures.mu is not None:  # epsilon at a tiny mu is steep; mu itself is not
        fits = figures.mu <= mu_allowed(budget) * (1 + TOLERANCE)
    else:
        fits = spent <= allowed * (1 + TOLERANCE)
    if fits:
        return None
    return f"The guarantee spends {name} = {spent:.9g}, the budget allows {allowed:.9g}."


def _stated(figures: Figures, budget: Budget) -> tuple[str, float | None, float | None]:
    """Name, allowed and spent amount of what a limited budget is stated in."""
    return {
        Notion.APPROXIMATE_DP: ("epsilon", budget.epsilon, figures.epsilon),
        Notion.RENYI_DP: ("b_g", budget.b_g, figures.b_g),
        Notion.ZERO_CONCENTRATED_DP: ("rho", budget.rho, figures.rho),
    }[budget.notion]


def _mismatch(guarantee: Guarantee, budget: Budget, unit: PrivacyUnit) -> str | None:
    if guarantee.established is Established.NONE:
        return "The release is not private, but the budget is limited."
    if guarantee.unit != unit:
        return f"The guarantee protects '{guarantee.unit}', but the data need '{unit}'."
    if guarantee.relation != budget.relation:
        return (
            f"The guarantee is stated under '{guarantee.relation}', "
            f"but the budget under '{budget.relation}'."
        )
    return None


def calibrate(
    budget: Budget,
    ledger_of: Callable[[float], tuple[Event, ...]],
    *,
    unit: PrivacyUnit = PrivacyUnit.USER,
    relative: float = 1e-4,
) -> float:
    """The smallest noise scale whose ledger satisfies the budget.

    It settles with the same accountant that judges the release, so what is calibrated here is
    accepted there. Settlements are cached, calibrations are not.

    Args:
        budget: What may be spent, under the relation that the ledgers' sensitivities are true for.
        ledger_of: From a noise scale to the ledger; more noise must not cost more.
        unit: The privacy unit.
        relative: How close to the smallest scale the result must be; it is never below it.

    Raises:
        BudgetError: If the budget is unlimited, no scale up to 1e12 satisfies it, or all do.
    """
    if budget.notion is Notion.UNLIMITED:
        raise BudgetError("An unlimited budget needs no noise; give a limited one.")

    def guarantee(scale: float) -> Guarantee:
        return Guarantee(
            established=Established.SETTLED,
            unit=unit,
            relation=budget.relation,
            ledger=ledger_of(scale),
        )

    def fits(scale: float) -> bool:
        return excess(guarantee(scale), budget, unit=unit) is None

    def overspent(log_scale: float) -> float:
        figures = settle(guarantee(math.exp(log_scale)), delta=budget.delta, alpha=budget.alpha)
        _, allowed, spent = _stated(figures, budget)
        if not spent or not allowed:  # nothing spent, or nothing known
            return -math.inf if spent == 0 else math.inf
        return math.log(spent / allowed)

    lower, upper = 0.0, 0.0
    while not fits(math.exp(upper)):
        lower, upper = upper, upper + 1
        if upper > math.log(1e12):
            raise BudgetError("No noise scale up to 1e12 satisfies the budget; check the ledger.")
    while lower == upper or fits(math.exp(lower)):
        upper, lower = lower, lower - 1
        if lower < math.log(1e-12):
            raise BudgetError("Every noise scale satisfies the budget; check the ledger.")
    scale = math.exp(crossing(overspent, lower, upper, absolute=relative / 4))
    while not fits(scale):
        scale *= 1 + relative / 4
    return scale
