"""A few latent normal variables that carry a window: the model behind the closed-form belief."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from panelbench_fusion.estimator import Moments


@dataclass(frozen=True, kw_only=True)
class LatentModel:
    """X_k = m_k + a_k . t and S_k = n_k + B_k t + e_k with t standard normal, e_k independent.

    The principal components of (X_1 .. X_K, S_1 .. S_K), each scaled by its standard deviation.
    Conditioning t on outputs Z_k = g_k S_k + W_k is a rank-one update a coordinate, whatever the
    gains are and whenever they are chosen; with all components it is the filter of
    `estimator.lmmse`.

    Attributes:
        state_mean: m, shape (steps,).
        state_loading: a, shape (steps, rank).
        state_rest: Variance of X_k that no component carries, shape (steps,).
        sum_mean: n, shape (steps, size).
        sum_loading: B, shape (steps, size, rank).
        sum_rest: Variance of e_k, shape (steps, size); the ridge included.
    """

    state_mean: np.ndarray
    state_loading: np.ndarray
    state_rest: np.ndarray
    sum_mean: np.ndarray
    sum_loading: np.ndarray
    sum_rest: np.ndarray

    @property
    def rank(self) -> int:
        """Number of latent variables."""
        return int(self.state_loading.shape[1])


def latent_model(moments: Moments, *, ridge: float, rank: int) -> LatentModel:
    """The model with the `rank` largest principal components of `moments`.

    Args:
        moments: Of the state and the sums.
        ridge: As in `estimator.lmmse`.
        rank: At most as many components; no more than the window has.
    """
    steps, width = moments.mean.shape
    side = steps * width
    matrix = moments.covariance.reshape(side, side)
    scale = np.sqrt(np.maximum(np.diag(matrix), np.finfo(float).tiny))
    values, vectors = np.linalg.eigh(matrix / scale / scale[:, None])
    kept = np.arange(side)[::-1][: min(rank, side)]
    flat = scale[:, None] * vectors[:, kept] * np.sqrt(np.maximum(values[kept], 0.0))
    loading = flat.reshape(steps, width, -1)
    variance = np.diag(matrix).reshape(steps, width)
    rest = np.maximum(variance - np.square(loading).sum(axis=-1), 0.0)
    return LatentModel(
        state_mean=moments.mean[:, 0],
        state_loading=loading[:, 0],
        state_rest=rest[:, 0],
        sum_mean=moments.mean[:, 1:],
        sum_loading=loading[:, 1:],
        sum_rest=rest[:, 1:] + ridge * variance[:, 1:],
    )
