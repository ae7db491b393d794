"""The only place where sums of private reports meet noise."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from panelbench_fusion.ledger import Ledger


def fused(
    sums: np.ndarray, gains: np.ndarray, *, draws: int, rng: np.random.Generator
) -> np.ndarray:
    """Z_k = g_k S_k + W_k, W_k standard normal and fresh for every draw, episode, step, coordinate.

    Args:
        sums: Shape (episodes, steps, size).
        gains: Shape (steps,); the very gains that are charged.
        draws: Independent runs of the mechanism, for the sake of evaluation.
        rng: The source of the noise.

    Returns:
        Shape (draws, episodes, steps, size).
    """
    noise: np.ndarray = rng.standard_normal((draws, *sums.shape))
    noise += gains[:, None] * sums
    return noise


def mixed(
    sums: np.ndarray, matrix: np.ndarray, *, draws: int, rng: np.random.Generator
) -> np.ndarray:
    """Z = A S + W with A fixed and causal, W standard normal and fresh as in `fused`.

    Args:
        sums: Shape (episodes, steps, size).
        matrix: A in time order, shape (steps * rows, steps * size); the very one that is charged.
        draws: Independent runs of the mechanism, for the sake of evaluation.
        rng: The source of the noise.

    Returns:
        Shape (draws, episodes, steps, rows).
    """
    passed = (sums.reshape(len(sums), -1) @ matrix.T).reshape(*sums.shape[:-1], -1)
    noise: np.ndarray = rng.standard_normal((draws, *passed.shape))
    noise += passed
    return noise


class OnlineChannel:
    """Sums of private reports behind a ledger: asks for a gain come in, fusion outputs come out.

    One object serves one release of some windows. At each step the gain that was asked for is
    clipped at what is left of the budget, charged, and only then meets the sums; the gain that is
    charged is the gain that is applied. A step is released once, in order.

    Args:
        sums: Shape (episodes, steps, size).
        ledger: What may be spent, of shape (draws, episodes).
        rng: The source of the noise.
    """

    def __init__(self, sums: np.ndarray, ledger: Ledger, *, rng: np.random.Generator) -> None:
        self._sums = sums
        self._ledger = ledger
        self._rng = rng
        self._next = 0

    def step(self, k: int, asked: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Release step k.

        Args:
            k: The step, from 0.
            asked: Gains before the clip, shape (draws, episodes); chosen from what is public.

        Returns:
            Fusion outputs of shape (draws, episodes, size), and the gains that were applied.

        Raises:
            RuntimeError: Where the step was released before, or its turn has not come.
        """
        if k != self._next:
            raise RuntimeError(
                f"Step {k} cannot be released, step {self._next} is next; releasing a step again "
                f"would have to be charged again."
            )
        self._next += 1
        gains = self._ledger.charge(asked)
        noise: np.ndarray = self._rng.standard_normal((*gains.shape, self._sums.shape[-1]))
        noise += gains[..., None] * self._sums[:, k]
        return noise, gains


class LiveChannel:
    """`OnlineChannel` for one window whose sums come in one step at a time.

    Args:
        ledger: What may be spent, for one path.
        steps: Steps of the window.
        rng: The source of the noise.
    """

    def __init__(self, ledger: Ledger, *, steps: int, rng: np.random.Generator) -> None:
        self._ledger = ledger
        self._rng = rng
        self._left = steps

    def check(self) -> None:
        """Refuse where no step is left to be released."""
        if self._left == 0:
            raise RuntimeError("All steps of the window were released; a window is released once.")

    def step(self, asked: float, sums: np.ndarray) -> tuple[np.ndarray, float]:
        """Release the next step.

        Args:
            asked: The gain before the clip; chosen from what is public.
            sums: S_k, shape (size,).

        Returns:
            Z_k, and the gain that was applied.

        Raises:
            RuntimeError: Where all steps of the window were released.
        """
        self.check()
        self._left -= 1
        gain = float(self._ledger.charge(np.asarray(asked)))
        noise: np.ndarray = self._rng.standard_normal(len(sums))
        noise += gain * sums
        return noise, gain
