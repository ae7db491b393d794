"""What this distribution registers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from panelbench import hookimpl
from panelbench_smartnoise.aim import Aim
from panelbench_smartnoise.mst import Mst

if TYPE_CHECKING:
    from panelbench import Mechanism


@hookimpl
def register_mechanisms() -> tuple[type[Mechanism], ...]:
    """All mechanisms of this distribution."""
    return (Aim, Mst)
