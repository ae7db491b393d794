"""What this distribution registers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from panelbench import hookimpl
from panelbench_fusion.adaptive import Adaptive, UniformLearnt
from panelbench_fusion.adaptive_ppo import AdaptivePpo
from panelbench_fusion.fast import Fast
from panelbench_fusion.gap import GapToBound
from panelbench_fusion.hold import Hold
from panelbench_fusion.matrix import MatrixFusion, SquareRoot, Tree
from panelbench_fusion.openloop import OpenLoop
from panelbench_fusion.references import Nonprivate, Prior
from panelbench_fusion.shares import BudgetAbsorption, BudgetDistribution
from panelbench_fusion.smooth import Smooth
from panelbench_fusion.trigger import Trigger
from panelbench_fusion.turnstile import Turnstile
from panelbench_fusion.uniform import Uniform

if TYPE_CHECKING:
    from panelbench import Mechanism, Metric


@hookimpl
def register_mechanisms() -> tuple[type[Mechanism], ...]:
    """All mechanisms of this distribution."""
    return (
        Adaptive,
        AdaptivePpo,
        UniformLearnt,
        Uniform,
        Hold,
        OpenLoop,
        MatrixFusion,
        Turnstile,
        SquareRoot,
        Tree,
        Smooth,
        Trigger,
        Fast,
        BudgetDistribution,
        BudgetAbsorption,
        Prior,
        Nonprivate,
    )


@hookimpl
def register_metrics() -> tuple[type[Metric], ...]:
    """What needs the bounds of this distribution."""
    return (GapToBound,)
