"""One number a metric gives, and the scale it is on."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


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
class Panel:
    """Lines for a picture beside a score, such as the error at each step.

    Attributes:
        across: What runs along the horizontal axis, with its unit.
        x: Positions on it, ascending.
        lines: Values at each position, by name: "value" (the entry's own line, needed), "lower" and
            "upper" (a band around it), "truth" (the same for all entries, drawn once). Kept to six
            significant digits.
        unit: Unit of the lines; empty for none.
    """

    across: str
    x: tuple[float, ...]
    lines: dict[str, tuple[float, ...]]
    unit: str = ""

    def __post_init__(self) -> None:
        if "value" not in self.lines or not self.lines.keys() <= LINES:
            raise ValueError(
                f"A panel needs a line 'value' and may have {sorted(LINES - {'value'})}, got "
                f"{sorted(self.lines)}."
            )
        object.__setattr__(self, "x", _short(self.x))
        lines = {name: _short(line) for name, line in self.lines.items()}
        object.__setattr__(self, "lines", lines)
        if {len(line) for line in lines.values()} != {len(self.x)}:
            raise ValueError(f"Every line of a panel needs {len(self.x)} values, one for each x.")


LINES = frozenset({"value", "lower", "upper", "truth"})


def _short(values: Iterable[float]) -> tuple[float, ...]:
    return tuple(float(f"{value:.6g}") for value in values)


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
        cases: Where the value is a mean over test episodes that are alike, the value of each, in
            order; intervals and paired differences then cover the draw of episodes too.
        panels: Pictures beside the score, by title.
    """

    component: str
    value: float
    unit: str = ""
    detail: dict[str, float] = field(default_factory=dict)
    floor: float | None = None
    cases: tuple[float, ...] = ()
    panels: dict[str, Panel] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", float(self.value))
        object.__setattr__(self, "cases", tuple(float(case) for case in self.cases))
        detail = {str(name): float(value) for name, value in self.detail.items()}
        object.__setattr__(self, "detail", detail)
        if self.floor is not None:
            object.__setattr__(self, "floor", float(self.floor))
