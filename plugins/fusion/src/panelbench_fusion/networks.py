"""The estimator's network, and how networks are initialised from a seed of their own."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import nn

if TYPE_CHECKING:
    from panelbench_fusion.policy import GainPolicy


class ResidualEstimator(nn.Module):
    """Xhat_k = closed-form estimate + its standard deviation times a GRU's correction.

    The correction starts at 0, so the estimator starts as the best linear one.

    Args:
        size: Coordinates of Z_k.
        memory: Width of the GRU.
    """

    def __init__(self, *, size: int, memory: int) -> None:
        super().__init__()
        self.cell = nn.GRUCell(size + 4, memory)
        self.head = nn.Linear(memory, 1)

    def start(self, paths: tuple[int, ...], *, like: torch.Tensor) -> torch.Tensor:
        """The memory before any output, shape (paths, memory), of the format of `like`."""
        return like.new_zeros((*paths, self.cell.hidden_size))

    def forward(
        self, seen: torch.Tensor, memory: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The correction in standard deviations, shape (...), and the next memory.

        Args:
            seen: Innovations, gain, share left, level and doubt, shape (..., size + 4).
            memory: Shape (..., memory).
        """
        flat = self.cell(seen.flatten(0, -2), memory.flatten(0, -2))
        after = flat.reshape(memory.shape)
        return self.head(after)[..., 0], after


class Critic(nn.Module):
    """Expected reward to come; sees the true state besides, as it is not deployed.

    Args:
        inputs: Numbers it sees.
        width: Of the two hidden layers.
    """

    def __init__(self, *, inputs: int, width: int) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(inputs, width),
            nn.Tanh(),
            nn.Linear(width, width),
            nn.Tanh(),
            nn.Linear(width, 1),
        )

    def forward(self, seen: torch.Tensor) -> torch.Tensor:
        """Values, shape (...)."""
        value: torch.Tensor = self.net(seen)[..., 0]
        return value


def initialise(module: nn.Module, generator: torch.Generator) -> None:
    """Uniform weights within 1 / sqrt(inputs) from `generator`; biases 0."""
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.ndim > 1:
                bound = 1 / math.sqrt(parameter.shape[1])
                parameter.uniform_(-bound, bound, generator=generator)
            else:
                parameter.zero_()


def initialise_pair(
    policy: GainPolicy, estimator: ResidualEstimator, generator: torch.Generator
) -> None:
    """Both networks such that the policy is its schedule and the correction is 0."""
    initialise(estimator, generator)
    with torch.no_grad():
        estimator.head.weight.zero_()
        if policy.net is not None:
            initialise(policy.net, generator)
            last = policy.net[-1]
            if not isinstance(last, nn.Linear):
                raise TypeError("The policy's last layer must be linear.")
            last.weight.mul_(0.01)
