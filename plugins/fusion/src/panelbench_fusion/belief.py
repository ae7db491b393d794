"""What anybody can infer from the fusion outputs so far: the exact Gaussian update, in torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import torch

if TYPE_CHECKING:
    from panelbench_fusion.latent import LatentModel


@dataclass(frozen=True, kw_only=True)
class Belief:
    """A normal distribution of the latent variables, one for each path.

    Attributes:
        mean: Shape (..., rank).
        covariance: Shape (..., rank, rank).
    """

    mean: torch.Tensor
    covariance: torch.Tensor


@dataclass(frozen=True, kw_only=True)
class Filter:
    """The latent model as tensors, with its update; see `LatentModel` for the fields."""

    state_mean: torch.Tensor
    state_loading: torch.Tensor
    state_rest: torch.Tensor
    sum_mean: torch.Tensor
    sum_loading: torch.Tensor
    sum_rest: torch.Tensor

    @classmethod
    def of(cls, model: LatentModel, dtype: torch.dtype) -> Self:
        """`model` in the number format `dtype`."""
        return cls(**{name: torch.as_tensor(v, dtype=dtype) for name, v in vars(model).items()})

    def on(self, device: torch.device) -> Self:
        """The same on a device."""
        return type(self)(**{name: value.to(device) for name, value in vars(self).items()})

    @property
    def steps(self) -> int:
        """K."""
        return len(self.state_mean)

    def start(self, paths: tuple[int, ...]) -> Belief:
        """The belief before any output."""
        rank = self.state_loading.shape[1]
        unit = torch.eye(rank, dtype=self.state_mean.dtype, device=self.state_mean.device)
        return Belief(mean=unit.new_zeros((*paths, rank)), covariance=unit.expand(*paths, -1, -1))

    def estimate(self, belief: Belief, k: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean and standard deviation of X_k; each of shape (...)."""
        loading = self.state_loading[k]
        variance = torch.einsum("i,...ij,j->...", loading, belief.covariance, loading)
        deviation = torch.sqrt(torch.clamp(variance, min=0.0) + self.state_rest[k] + 1e-12)
        return self.state_mean[k] + belief.mean @ loading, deviation

    def update(
        self, belief: Belief, k: int, gain: torch.Tensor, output: torch.Tensor
    ) -> tuple[Belief, torch.Tensor]:
        """Condition on Z_k.

        Args:
            belief: Before step k.
            k: The step, from 0.
            gain: Shape (...).
            output: Z_k, shape (..., size).

        Returns:
            The belief after it, and the standardised innovations, shape (..., size).
        """
        mean, covariance = belief.mean, belief.covariance
        innovations = []
        for i in range(output.shape[-1]):
            loading = self.sum_loading[k, i]
            against = covariance @ loading
            variance = 1 + gain**2 * (against @ loading + self.sum_rest[k, i])
            surprise = output[..., i] - gain * (self.sum_mean[k, i] + mean @ loading)
            mean = mean + (gain * surprise / variance)[..., None] * against
            share = (gain**2 / variance)[..., None, None]
            covariance = covariance - share * against[..., :, None] * against[..., None, :]
            innovations.append(surprise / torch.sqrt(variance))
        return Belief(mean=mean, covariance=covariance), torch.stack(innovations, dim=-1)
