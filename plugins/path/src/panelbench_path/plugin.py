"""What this distribution registers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from panelbench import hookimpl
from panelbench_path.cells import Cells, CellsNonprivate
from panelbench_path.path import Path, PathNonprivate
from panelbench_path.regimes import Regimes, RegimesNonprivate

if TYPE_CHECKING:
    from panelbench import Mechanism


@hookimpl
def register_mechanisms() -> tuple[type[Mechanism], ...]:
    """All mechanisms of this distribution."""
    return (Cells, CellsNonprivate, Path, PathNonprivate, Regimes, RegimesNonprivate)
