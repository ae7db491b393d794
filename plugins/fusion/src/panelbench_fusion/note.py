"""The sentence that says what a budget protects: a window, and a trip through several windows."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from panelbench.accounting import gaussian_epsilon

if TYPE_CHECKING:
    from panelbench import Budget


def guarantee_note(mu: float, budget: Budget, *, seconds: float, trip_windows: int) -> str:
    """Figures for one window and for a trip that touches several, from mu of one window."""

    def figures(total: float) -> str:
        return (
            f"({budget.alpha:g}, {budget.alpha * total**2 / 2:.4g})-RDP = {total**2 / 2:.4g}-zCDP "
            f"= {total:.4g}-GDP = ({gaussian_epsilon(total, budget.delta):.4g}, "
            f"{budget.delta:g})-DP"
        )

    return (
        f"Per window of {seconds:g} s: {figures(mu)}, for everything one sensor reports in it "
        f"({budget.relation}). Per trip: a sensor that reports in W windows is protected at W "
        f"times B_G, for W = {trip_windows}: {figures(mu * math.sqrt(trip_windows))}."
    )
