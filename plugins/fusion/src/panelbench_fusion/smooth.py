"""The optimised matrix where an estimate may wait: a class of its own, not real time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from panelbench_fusion.matrix import MatrixFusion


@dataclass(frozen=True, kw_only=True)
class Smooth(MatrixFusion):
    """`mf` with fixed-lag smoothing: X_k is estimated from Z_1 .. Z_(k + lag).

    The channel is optimised for that estimate. The last estimates of a window wait until its end,
    not longer. Entries that wait are ranked among themselves: what is public says so.

    Formal guarantee:
        That of `MatrixFusion`; waiting is post-processing and costs nothing.

    Attributes:
        lag: Steps that an estimate may wait.
        iterations: As in `MatrixFusion`.
        draws: As in `LinearFusion`.
        values: As in `LinearFusion`.
        trip_windows: As in `LinearFusion`.
    """

    name: ClassVar[str] = "smooth"

    lag: int = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.lag < 1:
            raise ValueError(f"lag must be at least 1 step, got {self.lag}.")

    def lag_steps(self) -> int:
        """The field."""
        return self.lag
