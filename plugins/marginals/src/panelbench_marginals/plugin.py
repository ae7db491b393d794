"""What this distribution registers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from panelbench import hookimpl
from panelbench_marginals.across import DirectAcross
from panelbench_marginals.aim import Aim
from panelbench_marginals.direct import Direct
from panelbench_marginals.markov import Markov

if TYPE_CHECKING:
    from panelbench import Mechanism


@hookimpl
def register_mechanisms() -> tuple[type[Mechanism], ...]:
    """All mechanisms of this distribution."""
    return (Aim, Direct, DirectAcross, Markov)
