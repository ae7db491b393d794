"""One number a metric gives, and the scale it is on."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum


class Direction(StrEnum):
    """Which way is better."""

    LOWER = "lower"
    HIGHER = "higher"


@dataclass(frozen=True, kw_only=True)
class Scale:
    """What a component of a metric promises about its values.

    Attributes:
        direction: Which way is better.
        lower: Smallest possible value.
        upper: Largest possible value (may be infinite; a score itself may not).
        perfect: The value when the release is the reference itself.
    """

    direction: Direction = Direction.LOWER
    lower: float = 0.0
    upper: float = math.inf
    perfect: float = 0.0

    def __post_init__(self) -> None:
        if not self.lower <= self.perfect <= self.upper:
            raise ValueError(f"perfect = {self.perfect} lies outside {self.lower}..{self.upper}.")


@dataclass(frozen=True, kw_only=True)
class Score:
    """One value of one component of a metric.

    Attributes:
        component: Which of the metric's declared components.
        value: The value, finite and within the component's scale, or the harness calls the record
            invalid.
        unit: Unit in words; empty for none.
        detail: The same quantity by column, step or the like.
        floor: The same score between two disjoint real samples of the same sizes, where computed.
    """

    component: str
    value: float
    unit: str = ""
    detail: dict[str, float] = field(default_factory=dict)
    floor: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", float(self.value))
        detail = {str(name): float(value) for name, value in self.detail.items()}
        object.__setattr__(self, "detail", detail)
        if self.floor is not None:
            object.__setattr__(self, "floor", float(self.floor))
