"""A trained system on one window as it happens, without torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from panelbench_fusion.channel import LiveChannel
from panelbench_fusion.ledger import Ledger
from panelbench_fusion.listener import Listener

if TYPE_CHECKING:
    import numpy as np

    from panelbench_fusion.listener import Exported


class Window:
    """Algorithm 1 on one window as it happens: sums of private reports in, estimates out.

    Formal guarantee:
        That of `Adaptive`, for one run over one window: the gain is asked for before the sum of
        its step comes in, `LiveChannel` clips and charges it by the same `Ledger`, and each step is
        released once.

    Args:
        weights: Of the trained system.
        rng: The source of the noise.
    """

    def __init__(self, weights: Exported, *, rng: np.random.Generator) -> None:
        self._listener = Listener(weights)
        ledger = Ledger(weights.total, l2_sensitivity=weights.l2_sensitivity, paths=())
        self._channel = LiveChannel(ledger, steps=len(weights.schedule), rng=rng)
        self.ledger = ledger

    def step(self, sums: np.ndarray) -> float:
        """Release the next step, whose sum has the shape (size,); Xhat_k."""
        self._channel.check()
        asked = self._listener.ask()
        output, gain = self._channel.step(asked, sums)
        return self._listener.hear(gain, output)
