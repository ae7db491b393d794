"""What anybody can compute from fusion outputs with a trained system, without torch: one path.

`rollout` runs many paths at once, for training and evaluation; this is the same loop for one path
in numpy, from weights exported once, in a fraction of a millisecond a step. Nothing private comes
into this module.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch

    from panelbench_fusion.rollout import System

SMALL = 1e-12
TINY = 1e-30
"""As in `rollout`."""


@dataclass(frozen=True, kw_only=True)
class Exported:
    """All that is public and fixed before a protected report is read, as arrays.

    Attributes:
        state_mean: As in `LatentModel`, like the next five.
        state_loading: Shape (steps, rank).
        state_rest: Shape (steps,).
        sum_mean: Shape (steps, size).
        sum_loading: Shape (steps, size, rank).
        sum_rest: Shape (steps, size).
        schedule: Wishes of the policy's schedule, shape (steps,).
        layers: Weights and biases of the policy's network in order; empty for a schedule alone.
        cell: Input weights, memory weights and their biases of the GRU, gates in torch's order.
        head: Of the correction, shape (memory,), and its bias.
        total: Q.
        l2_sensitivity: Of a step's sum.
    """

    state_mean: np.ndarray
    state_loading: np.ndarray
    state_rest: np.ndarray
    sum_mean: np.ndarray
    sum_loading: np.ndarray
    sum_rest: np.ndarray
    schedule: np.ndarray
    layers: tuple[tuple[np.ndarray, np.ndarray], ...]
    cell: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
    head: tuple[np.ndarray, float]
    total: float
    l2_sensitivity: float

    @classmethod
    def of(cls, system: System) -> Exported:
        """The weights of a trained system in double precision."""
        policy = system.policy.state_dict()
        estimator = {name: _array(value) for name, value in system.estimator.state_dict().items()}
        depth = sorted({int(name.split(".")[1]) for name in policy if name.startswith("net.")})
        return cls(
            **{name: _array(value) for name, value in vars(system.filter).items()},
            schedule=_array(policy["schedule"]),
            layers=tuple(
                (_array(policy[f"net.{i}.weight"]), _array(policy[f"net.{i}.bias"])) for i in depth
            ),
            cell=(
                estimator["cell.weight_ih"],
                estimator["cell.weight_hh"],
                estimator["cell.bias_ih"],
                estimator["cell.bias_hh"],
            ),
            head=(estimator["head.weight"][0], float(estimator["head.bias"][0])),
            total=system.total,
            l2_sensitivity=system.l2_sensitivity,
        )


def _array(tensor: torch.Tensor) -> np.ndarray:
    return np.asarray(tensor.detach().cpu().double().numpy()).copy()


class Listener:
    """The gain to ask for, and the estimate.

    Args:
        weights: Of the trained system.
    """

    def __init__(self, weights: Exported) -> None:
        self._weights = weights
        rank = weights.state_loading.shape[1]
        self._k = 0
        self._mean, self._covariance = np.zeros(rank), np.eye(rank)
        self._memory = np.zeros(len(weights.head[0]))
        self._left, self._surprise = 1.0, 0.0
        self._prior = np.sqrt(
            np.square(weights.state_loading).sum(axis=1) + weights.state_rest + SMALL
        )
        self._even = math.sqrt(len(weights.schedule) / weights.total) * weights.l2_sensitivity

    def _estimate(self) -> tuple[float, float, float, float]:
        """Mean and standard deviation of X_k, and both as networks see them."""
        weights, k = self._weights, self._k
        loading = weights.state_loading[k]
        variance = float(loading @ self._covariance @ loading)
        deviation = math.sqrt(max(variance, 0.0) + weights.state_rest[k] + SMALL)
        change = float(self._mean @ loading)
        prior = float(self._prior[k])
        mean = float(weights.state_mean[k]) + change
        return mean, deviation, change / prior, math.log(deviation / prior)

    def ask(self) -> float:
        """The gain for the next step, before the clip."""
        weights, k = self._weights, self._k
        steps = len(weights.schedule)
        _, _, level, doubt = self._estimate()
        wish = float(weights.schedule[k])
        if weights.layers:
            summary = (self._left, k / steps, level, doubt, self._surprise)
            seen = np.concatenate([summary, self._memory])
            for weight, bias in weights.layers[:-1]:
                seen = np.tanh(weight @ seen + bias)
            weight, bias = weights.layers[-1]
            wish += float(weight[0] @ seen) + float(bias[0])
        after = steps - 1 - k
        share = _sigmoid(wish - math.log(after)) if after else 1.0
        return math.sqrt(share * self._left * weights.total + TINY) / weights.l2_sensitivity

    def hear(self, gain: float, output: np.ndarray) -> float:
        """Xhat_k, from Z_k of shape (size,) and the gain that was applied."""
        weights, k = self._weights, self._k
        spent = (gain * weights.l2_sensitivity) ** 2 / weights.total
        self._left = max(self._left - spent, 0.0)
        seen, squares = [], 0.0
        for place in range(len(output)):
            loading = weights.sum_loading[k, place]
            against = self._covariance @ loading
            variance = 1 + gain**2 * (float(against @ loading) + float(weights.sum_rest[k, place]))
            expected = gain * (float(weights.sum_mean[k, place]) + float(self._mean @ loading))
            surprise = float(output[place]) - expected
            self._mean = self._mean + (gain * surprise / variance) * against
            share = gain**2 / variance
            self._covariance = self._covariance - np.outer(share * against, against)
            seen.append(surprise / math.sqrt(variance))
            squares += seen[-1] ** 2
        self._surprise = math.sqrt(squares / len(output) + SMALL)
        linear, deviation, level, doubt = self._estimate()
        self._remember(np.array([*seen, gain * self._even, self._left, level, doubt]))
        self._k += 1
        head, bias = weights.head
        return linear + deviation * (float(head @ self._memory) + bias)

    def _remember(self, seen: np.ndarray) -> None:
        by_input, by_memory, input_bias, memory_bias = self._weights.cell
        width = len(self._memory)
        new, old = by_input @ seen + input_bias, by_memory @ self._memory + memory_bias
        gates = 0.5 + 0.5 * np.tanh(0.5 * (new[: 2 * width] + old[: 2 * width]))
        candidate = np.tanh(new[2 * width :] + gates[:width] * old[2 * width :])
        self._memory = candidate + gates[width:] * (self._memory - candidate)


def _sigmoid(value: float) -> float:
    return 0.5 + 0.5 * math.tanh(0.5 * value)
