"""Whose contribution is protected, how neighbors differ, what may be spent, what was spent.

All values are frozen and checked at birth. The numbers that follow from them (conversions,
calibration, settling a ledger) live in `accounting`.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from panelbench.errors import BudgetError


class PrivacyUnit(StrEnum):
    """Whose contribution the guarantee protects."""

    USER = "user"
    """One user with all rows of the user's table."""
    SENSOR_TRAJECTORY = "sensor-trajectory"
    """Everything one sensor (a vehicle) reports within one episode (window)."""


class NeighboringRelation(StrEnum):
    """How two neighboring datasets may differ, in one privacy unit."""

    ADD_OR_REMOVE_ONE = "add-or-remove-one"
    """One unit is present in one of them and absent from the other."""
    REPLACE_ONE = "replace-one"
    """One unit is replaced by any other; an absent sensor is one such value."""


class Notion(StrEnum):
    """The notion of privacy in which a budget is stated."""

    APPROXIMATE_DP = "dp"
    RENYI_DP = "rdp"
    ZERO_CONCENTRATED_DP = "zcdp"
    UNLIMITED = "none"
    """No budget: for references that are not private."""


def _positive(name: str, value: float | None) -> None:
    if value is None or not value > 0 or math.isnan(value):
        raise BudgetError(f"{name} must be a positive number, got {value}.")


@dataclass(frozen=True, kw_only=True)
class Budget:
    """What a run may spend, stated in one notion under one neighboring relation.

    Make one with `approximate_dp`, `renyi_dp`, `zero_concentrated_dp` or `unlimited`.

    Attributes:
        notion: The notion that binds; the other figures are derived by `accounting.equivalents`.
        relation: The neighboring relation that the guarantee must be stated under.
        epsilon: Bound for `APPROXIMATE_DP`.
        delta: For `APPROXIMATE_DP` part of the budget; for the other notions the delta at which
            epsilon is reported.
        alpha: Order for `RENYI_DP`; for the other notions the order at which b_g is reported.
        b_g: Bound B_G on the Renyi divergence of order alpha, for `RENYI_DP`.
        rho: Bound for `ZERO_CONCENTRATED_DP`.
    """

    notion: Notion
    relation: NeighboringRelation = NeighboringRelation.ADD_OR_REMOVE_ONE
    epsilon: float | None = None
    delta: float = 1e-5
    alpha: float = 2.0
    b_g: float | None = None
    rho: float | None = None

    def __post_init__(self) -> None:
        stated = {
            Notion.APPROXIMATE_DP: "epsilon",
            Notion.RENYI_DP: "b_g",
            Notion.ZERO_CONCENTRATED_DP: "rho",
        }.get(self.notion)
        for name in ("epsilon", "b_g", "rho"):
            if name == stated:
                _positive(name, getattr(self, name))
            elif getattr(self, name) is not None:
                raise BudgetError(
                    f"A budget in the notion '{self.notion}' is stated by "
                    f"{stated or 'nothing'}, but {name} was given too."
                )
        if not 0 < self.delta < 1:
            raise BudgetError(f"delta must lie strictly between 0 and 1, got {self.delta}.")
        if not 1 < self.alpha < math.inf:
            raise BudgetError(f"alpha must be a finite number above 1, got {self.alpha}.")

    @classmethod
    def approximate_dp(
        cls,
        epsilon: float,
        delta: float,
        *,
        relation: NeighboringRelation = NeighboringRelation.ADD_OR_REMOVE_ONE,
        alpha: float = 2.0,
    ) -> Budget:
        """(epsilon, delta)-DP."""
        return cls(
            notion=Notion.APPROXIMATE_DP,
            epsilon=epsilon,
            delta=delta,
            relation=relation,
            alpha=alpha,
        )

    @classmethod
    def renyi_dp(
        cls,
        alpha: float,
        b_g: float,
        *,
        relation: NeighboringRelation = NeighboringRelation.ADD_OR_REMOVE_ONE,
        delta: float = 1e-5,
    ) -> Budget:
        """(alpha, B_G)-Renyi DP."""
        return cls(notion=Notion.RENYI_DP, alpha=alpha, b_g=b_g, relation=relation, delta=delta)

    @classmethod
    def zero_concentrated_dp(
        cls,
        rho: float,
        *,
        relation: NeighboringRelation = NeighboringRelation.ADD_OR_REMOVE_ONE,
        delta: float = 1e-5,
        alpha: float = 2.0,
    ) -> Budget:
        """rho-zCDP."""
        return cls(
            notion=Notion.ZERO_CONCENTRATED_DP,
            rho=rho,
            relation=relation,
            delta=delta,
            alpha=alpha,
        )

    @classmethod
    def unlimited(
        cls, *, relation: NeighboringRelation = NeighboringRelation.ADD_OR_REMOVE_ONE
    ) -> Budget:
        """No bound; what references that are not private receive."""
        return cls(notion=Notion.UNLIMITED, relation=relation)

    def to_json(self) -> dict[str, Any]:
        """A JSON-able description."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> Budget:
        """The inverse of `to_json`."""
        return cls(
            **{
                **raw,
                "notion": Notion(raw["notion"]),
                "relation": NeighboringRelation(raw["relation"]),
            }
        )


def _checked(event: Event) -> None:
    """Make the numbers of an event plain Python, and refuse what is no positive number."""
    for field in dataclasses.fields(event):
        given = getattr(event, field.name)
        try:
            value = int(given) if field.name == "count" else float(given)
        except (TypeError, ValueError) as error:
            raise BudgetError(f"{field.name} must be a number, got {given!r}.") from error
        if not (math.isfinite(value) and value > 0) or value != given:
            what = "a whole number of at least 1" if field.name == "count" else "positive"
            raise BudgetError(f"{field.name} must be {what} and finite, got {given}.")
        object.__setattr__(event, field.name, value)


@dataclass(frozen=True, kw_only=True)
class GaussianEvent:
    """`count` releases of a vector plus Gaussian noise, the query chosen before the noise is seen.

    Attributes:
        stddev: Standard deviation of the noise in each coordinate, in the data's unit.
        l2_sensitivity: The true L2 sensitivity under the *declared* relation, same unit. Under
            replace-one a histogram count has sqrt(2) here, not 1.
        count: How many times the event is composed.
    """

    stddev: float
    l2_sensitivity: float
    count: int = 1

    def __post_init__(self) -> None:
        _checked(self)


@dataclass(frozen=True, kw_only=True)
class SampledGaussianEvent:
    """`count` Gaussian releases, each on a fresh Poisson sample of the privacy units.

    Attributes:
        stddev: Standard deviation of the noise on the *sum*, in the unit of the clipping norm.
        clipping_norm: Bound on the L2 norm that one unit adds to the sum. This is not the
            sensitivity: the accountant derives that from the relation.
        sampling_probability: Probability with which each unit is sampled, in (0, 1].
        count: How many times the event is composed.
    """

    stddev: float
    clipping_norm: float
    sampling_probability: float
    count: int = 1

    def __post_init__(self) -> None:
        _checked(self)
        if self.sampling_probability > 1:
            raise BudgetError(
                f"sampling_probability must lie in (0, 1], got {self.sampling_probability}."
            )


@dataclass(frozen=True, kw_only=True)
class LaplaceEvent:
    """`count` releases of a vector plus Laplace noise.

    Attributes:
        scale: Scale of the noise in each coordinate, in the data's unit.
        l1_sensitivity: The true L1 sensitivity under the declared relation, same unit.
        count: How many times the event is composed.
    """

    scale: float
    l1_sensitivity: float
    count: int = 1

    def __post_init__(self) -> None:
        _checked(self)


@dataclass(frozen=True, kw_only=True)
class ExponentialEvent:
    """`count` selections by the exponential mechanism, each epsilon-DP and epsilon-bounded-range.

    Attributes:
        epsilon: The parameter of P(r) ~ exp(epsilon * score(r) / (2 * sensitivity)), with the
            sensitivity of the score under the declared relation.
        count: How many times the event is composed.
    """

    epsilon: float
    count: int = 1

    def __post_init__(self) -> None:
        _checked(self)


@dataclass(frozen=True, kw_only=True)
class ZeroConcentratedEvent:
    """A part that is rho-zCDP as a whole.

    For steps whose number and noise depend on what earlier ones gave. A filter that stops before
    their rhos add up to `rho` makes them rho-zCDP together (Whitehouse et al. 2023,
    arXiv:2203.05481, theorem 1); no such theorem holds for privacy loss distributions, so steps
    that were chosen that way must not be listed one by one.

    Attributes:
        rho: The bound, under the declared relation.
        count: How many times the event is composed.
    """

    rho: float
    count: int = 1

    def __post_init__(self) -> None:
        _checked(self)


Event = (
    GaussianEvent | SampledGaussianEvent | LaplaceEvent | ExponentialEvent | ZeroConcentratedEvent
)
"""What a ledger is made of."""

_EVENTS: dict[str, type[Event]] = {
    cls.__name__: cls
    for cls in (
        *(GaussianEvent, SampledGaussianEvent, LaplaceEvent, ExponentialEvent),
        ZeroConcentratedEvent,
    )
}


class Established(StrEnum):
    """How a guarantee is known to hold."""

    SETTLED = "settled"
    """Recomputed by the harness from the ledger."""
    DECLARED = "declared"
    """Stated by a library that gives no ledger."""
    NONE = "none"
    """Not private; a reference row."""


@dataclass(frozen=True, kw_only=True)
class Guarantee:
    """What a release satisfies, and everything that is needed to check it.

    Attributes:
        established: How it is known. `SETTLED` needs a ledger (an empty one says that nothing
            private was read), `DECLARED` needs `declared`, `NONE` has neither.
        unit: Whose contribution is protected.
        relation: How neighbors differ.
        ledger: The composed events, adaptively chosen ones included.
        declared: The claim of a library that keeps no ledger.
        public: What was assumed to be public beyond the schema, one short phrase each. Entries
            are ranked only against others that assume the same, so use the same words.
        note: One sentence for readers, for example a guarantee per trip beside one per window.
    """

    established: Established
    unit: PrivacyUnit
    relation: NeighboringRelation
    ledger: tuple[Event, ...] = ()
    declared: Budget | None = None
    public: tuple[str, ...] = ()
    note: str = ""

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "established", Established(self.established))
            object.__setattr__(self, "unit", PrivacyUnit(self.unit))
            object.__setattr__(self, "relation", NeighboringRelation(self.relation))
            object.__setattr__(self, "ledger", tuple(self.ledger))
        except (TypeError, ValueError) as error:
            raise BudgetError(f"The guarantee is malformed: {error}.") from error
        for event in self.ledger:
            if type(event) not in _EVENTS.values():
                raise BudgetError(
                    f"A ledger holds {', '.join(_EVENTS)}, got {type(event).__name__}."
                )
        if self.established is not Established.SETTLED and self.ledger:
            raise BudgetError(f"A guarantee that is '{self.established}' has no ledger.")
        if (self.established is Established.DECLARED) != (self.declared is not None):
            raise BudgetError("A declared guarantee, and no other, needs the declared budget.")
        if self.declared is not None and self.declared.relation != self.relation:
            raise BudgetError(
                f"The declared budget is stated under {self.declared.relation}, "
                f"the guarantee under {self.relation}."
            )

    def to_json(self) -> dict[str, Any]:
        """A JSON-able description, the kind of each event spelt out."""
        ledger = [{"event": type(event).__name__, **vars(event)} for event in self.ledger]
        return {**dataclasses.asdict(self), "ledger": ledger}

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> Guarantee:
        """The inverse of `to_json`."""
        return cls(
            established=Established(raw["established"]),
            unit=PrivacyUnit(raw["unit"]),
            relation=NeighboringRelation(raw["relation"]),
            ledger=tuple(
                _EVENTS[event["event"]](**{k: v for k, v in event.items() if k != "event"})
                for event in raw["ledger"]
            ),
            declared=None if raw["declared"] is None else Budget.from_json(raw["declared"]),
            public=tuple(raw["public"]),
            note=raw["note"],
        )
