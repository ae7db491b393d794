"""The gain policy: what share of the remaining budget a step gets, from public state alone.

This module cannot import or hold private data. What a policy sees is a `PublicState`, whose fields
anybody can compute from the fusion outputs so far; the privacy proof needs no more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import nn

SUMMARY = 5
"""Numbers in a public state besides the estimator's memory."""


@dataclass(frozen=True, kw_only=True)
class PublicState:
    """What is public before step k.

    Attributes:
        k: The step, from 0.
        steps: K.
        left: Remaining share of the budget, 0 to 1, shape (...).
        level: Predicted X_k less its mean before any output, over its standard deviation then.
        doubt: Log of the predicted standard deviation of X_k over that before any output.
        surprise: Root mean square of the last standardised innovations.
        memory: Hidden state of the estimator, shape (..., width).
    """

    k: int
    steps: int
    left: torch.Tensor
    level: torch.Tensor
    doubt: torch.Tensor
    surprise: torch.Tensor
    memory: torch.Tensor

    def vector(self) -> torch.Tensor:
        """All of it in one vector, shape (..., SUMMARY + width)."""
        share = torch.full_like(self.left, self.k / self.steps)
        summary = torch.stack([self.left, share, self.level, self.doubt, self.surprise], dim=-1)
        return torch.cat([summary, self.memory], dim=-1)


def share_of(wish: torch.Tensor, k: int, steps: int) -> torch.Tensor:
    """a_k = sigmoid(u + log(1 / (K - k))) of what is left, k counted from 1; all of it at the end.

    With u = 0 at every step the shares are those of the uniform schedule.
    """
    after = steps - 1 - k
    if after == 0:
        return torch.ones_like(wish)
    return torch.sigmoid(wish - math.log(after))


class GainPolicy(nn.Module):
    """u_k = b_k + MLP(public state): a schedule, and how to leave it.

    Args:
        schedule: b, the wishes of the schedule to start from, shape (steps,).
        memory: Width of the estimator's memory.
        width: Of the two hidden layers; 0 for the schedule alone.
    """

    def __init__(self, schedule: torch.Tensor, *, memory: int, width: int) -> None:
        super().__init__()
        self.schedule = nn.Parameter(schedule.clone())
        self.net: nn.Sequential | None = None
        if width:
            self.net = nn.Sequential(
                nn.Linear(SUMMARY + memory, width),
                nn.Tanh(),
                nn.Linear(width, width),
                nn.Tanh(),
                nn.Linear(width, 1),
            )

    def wish(self, k: torch.Tensor | int, vector: torch.Tensor) -> torch.Tensor:
        """u_k for public states written as vectors, shape (...)."""
        wish: torch.Tensor = self.schedule[k].expand(vector.shape[:-1])
        if self.net is not None:
            wish = wish + self.net(vector)[..., 0]
        return wish

    def forward(self, state: PublicState) -> torch.Tensor:
        """u_k, shape (...)."""
        return self.wish(state.k, state.vector())
