"""What anybody can infer from the outputs of gains that were chosen on the way, in closed form."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from panelbench_fusion.latent import LatentModel


class Posterior:
    """What anybody can infer about a window from its fusion outputs, one for each path.

    The latent variables are normal given the outputs; an output Z_k = g S_k + W_k is a rank-one
    update for each coordinate, whatever the gain.

    Args:
        model: The latent model.
        paths: Shape of the paths.
    """

    def __init__(self, model: LatentModel, paths: tuple[int, ...]) -> None:
        self._model = model
        self._mean = np.zeros((*paths, model.rank))
        self._covariance = np.broadcast_to(np.eye(model.rank), (*paths, model.rank, model.rank))

    def estimate(self, k: int) -> np.ndarray:
        """The mean of X_k given the outputs so far, shape (paths)."""
        loading = self._model.state_loading[k]
        return np.asarray(self._model.state_mean[k] + self._mean @ loading)

    def update(self, k: int, gains: np.ndarray, outputs: np.ndarray) -> None:
        """Condition on Z_k of shape (paths, size), released with gains of shape (paths)."""
        for place in range(outputs.shape[-1]):
            loading = self._model.sum_loading[k, place]
            against = self._covariance @ loading
            of_sum = against @ loading + self._model.sum_rest[k, place]
            variance = 1 + gains**2 * of_sum
            predicted = self._model.sum_mean[k, place] + self._mean @ loading
            weight = gains / variance
            innovation = outputs[..., place] - gains * predicted
            self._mean = self._mean + (weight * innovation)[..., None] * against
            self._covariance = (
                self._covariance
                - (weight * gains)[..., None, None] * against[..., :, None] * against[..., None, :]
            )
