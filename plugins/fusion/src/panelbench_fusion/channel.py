"""The only place where sums of private reports meet noise."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np


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
        matrix: A in time order, shape (steps * size, steps * size); the very one that is charged.
        draws: Independent runs of the mechanism, for the sake of evaluation.
        rng: The source of the noise.

    Returns:
        Shape (draws, episodes, steps, size).
    """
    flat = sums.reshape(len(sums), -1) @ matrix.T
    noise: np.ndarray = rng.standard_normal((draws, *sums.shape))
    noise += flat.reshape(sums.shape)
    return noise
