"""Algorithm 1: the online loop of gain, fusion output and estimate, for training and for release.

The loop sees outputs and gains only. What stands behind `Channel` differs: in training a
differentiable one over windows whose people are not protected, in a release `OnlineChannel`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

import torch

from panelbench_fusion.policy import PublicState, share_of

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

    from panelbench_fusion.belief import Filter
    from panelbench_fusion.channel import OnlineChannel
    from panelbench_fusion.networks import ResidualEstimator
    from panelbench_fusion.policy import GainPolicy


class Channel(Protocol):
    """Where gains go in and fusion outputs come out."""

    def step(self, k: int, asked: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Fusion outputs of shape (..., size) and the gains applied, of shape (...)."""
        ...


class TrainingChannel:
    """Windows whose people are not protected; gradients pass.

    Args:
        sums: Shape (..., steps, size).
        noise: Of the same shape.
    """

    def __init__(self, sums: torch.Tensor, noise: torch.Tensor) -> None:
        self._sums = sums
        self._noise = noise

    def step(self, k: int, asked: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """As in `Channel`."""
        return asked[..., None] * self._sums[..., k, :] + self._noise[..., k, :], asked


class ReleaseChannel:
    """`OnlineChannel` for tensors; no gradient passes."""

    def __init__(self, online: OnlineChannel) -> None:
        self._online = online

    def step(self, k: int, asked: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """As in `Channel`."""
        asked_array: np.ndarray = asked.detach().numpy()
        outputs, gains = self._online.step(k, asked_array)
        return torch.from_numpy(outputs).to(asked), torch.from_numpy(gains).to(asked)


@dataclass(kw_only=True)
class Trace:
    """What a rollout leaves behind; every list has one entry a step.

    Attributes:
        estimates: Xhat_k, shape (...).
        gains: Gains applied, shape (...).
        states: Public states as vectors, shape (..., numbers).
        wishes: u_k, shape (...).
    """

    estimates: list[torch.Tensor] = field(default_factory=list)
    gains: list[torch.Tensor] = field(default_factory=list)
    states: list[torch.Tensor] = field(default_factory=list)
    wishes: list[torch.Tensor] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class System:
    """All that is public and fixed before a protected report is read.

    Attributes:
        filter: The closed-form belief.
        policy: The gain policy.
        estimator: The residual network.
        total: Q.
        l2_sensitivity: Of a step's sum.
    """

    filter: Filter
    policy: GainPolicy
    estimator: ResidualEstimator
    total: float
    l2_sensitivity: float

    def on(self, device: torch.device) -> System:
        """The same on a device; networks move, they are not copied."""
        return replace(
            self,
            filter=self.filter.on(device),
            policy=self.policy.to(device),
            estimator=self.estimator.to(device),
        )

    def rollout(
        self,
        channel: Channel,
        paths: tuple[int, ...],
        *,
        explore: Callable[[torch.Tensor], torch.Tensor] | None = None,
    ) -> Trace:
        """Run Algorithm 1 on many paths at once.

        Args:
            channel: Gives Z_k for a gain.
            paths: Shape of the paths.
            explore: Turns u_k into the one that is applied, where a policy explores.
        """
        trace = Trace()
        filter_, steps = self.filter, self.filter.steps
        belief = filter_.start(paths)
        memory = self.estimator.start(paths, like=belief.mean)
        left = belief.mean.new_ones(paths)
        surprise = belief.mean.new_zeros(paths)
        prior = torch.sqrt(filter_.state_loading.square().sum(-1) + filter_.state_rest + 1e-12)
        for k in range(steps):
            predicted, deviation = filter_.estimate(belief, k)
            state = PublicState(
                k=k,
                steps=steps,
                left=left,
                level=(predicted - filter_.state_mean[k]) / prior[k],
                doubt=torch.log(deviation / prior[k]),
                surprise=surprise,
                memory=memory,
            )
            wish = self.policy(state)
            if explore is not None:
                wish = explore(wish)
            share = share_of(wish, k, steps)
            asked = torch.sqrt(share * left * self.total + 1e-30) / self.l2_sensitivity
            output, gain = channel.step(k, asked)
            left = torch.clamp(left - (gain * self.l2_sensitivity) ** 2 / self.total, min=0.0)
            belief, innovations = filter_.update(belief, k, gain, output)
            surprise = torch.sqrt(innovations.square().mean(-1) + 1e-12)
            linear, deviation = filter_.estimate(belief, k)
            seen = torch.stack(
                [
                    gain * self.l2_sensitivity * (steps / self.total) ** 0.5,
                    left,
                    (linear - filter_.state_mean[k]) / prior[k],
                    torch.log(deviation / prior[k]),
                ],
                dim=-1,
            )
            correction, memory = self.estimator(torch.cat([innovations, seen], dim=-1), memory)
            trace.estimates.append(linear + deviation * correction)
            trace.gains.append(gain)
            trace.states.append(state.vector())
            trace.wishes.append(wish)
        return trace
