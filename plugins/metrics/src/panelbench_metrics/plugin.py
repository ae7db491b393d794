"""What this distribution registers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from panelbench import hookimpl
from panelbench_metrics.length import LengthW1
from panelbench_metrics.marginal import MarginalW1
from panelbench_metrics.mse import Mse
from panelbench_metrics.tdcr import Tdcr
from panelbench_metrics.transition import TransitionError

if TYPE_CHECKING:
    from panelbench import Metric


@hookimpl
def register_metrics() -> tuple[type[Metric], ...]:
    """All metrics of this distribution."""
    return (Mse, MarginalW1, TransitionError, Tdcr, LengthW1)
