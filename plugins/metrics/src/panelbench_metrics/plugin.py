"""What this distribution registers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from panelbench import hookimpl
from panelbench_metrics.categories import ComplaintTransitions
from panelbench_metrics.copies import ExactCopies
from panelbench_metrics.correlation import CorrelationError
from panelbench_metrics.hours import HourOfDayW1
from panelbench_metrics.invalid import InvalidShare
from panelbench_metrics.length import LengthW1
from panelbench_metrics.likelihood import HmmLikelihood
from panelbench_metrics.marginal import MarginalW1
from panelbench_metrics.mauve import Mauve
from panelbench_metrics.mse import Mse
from panelbench_metrics.spatial import SpatialJsd
from panelbench_metrics.tdcr import Tdcr
from panelbench_metrics.transition import TransitionError
from panelbench_metrics.two_sample import ClassifierTwoSample

if TYPE_CHECKING:
    from panelbench import Metric


@hookimpl
def register_metrics() -> tuple[type[Metric], ...]:
    """All metrics of this distribution."""
    return (
        Mse,
        MarginalW1,
        TransitionError,
        Tdcr,
        LengthW1,
        Mauve,
        HmmLikelihood,
        ClassifierTwoSample,
        ComplaintTransitions,
        CorrelationError,
        ExactCopies,
        HourOfDayW1,
        InvalidShare,
        SpatialJsd,
    )
