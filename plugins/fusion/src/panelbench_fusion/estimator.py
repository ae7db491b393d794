"""Causal linear estimates of the state from the fusion outputs, in closed form.

The moments come from training windows, whose people the guarantee does not protect; running the
filter is post-processing of what was released.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.linalg import cholesky, solve_triangular

if TYPE_CHECKING:
    from collections.abc import Sequence

FOLDS = 4


@dataclass(frozen=True, kw_only=True)
class Moments:
    """Means and covariances of (X_k, S_k) over one window.

    Attributes:
        mean: Shape (steps, 1 + size), the state first.
        covariance: Shape (steps, 1 + size, steps, 1 + size).
    """

    mean: np.ndarray
    covariance: np.ndarray


def sample_moments(state: np.ndarray, sums: np.ndarray) -> Moments:
    """Moments over windows; each step and pair of steps by itself."""
    joint = np.concatenate([state[..., None], sums], axis=-1)
    mean = joint.mean(axis=0)
    rest = (joint - mean).reshape(len(joint), -1)
    covariance = rest.T @ rest / len(joint)
    return Moments(mean=mean, covariance=covariance.reshape(mean.shape * 2))


def stationary_moments(state: np.ndarray, sums: np.ndarray) -> Moments:
    """Moments of a stationary process: averaged over all pairs of steps with the same lag."""
    joint = np.concatenate([state[..., None], sums], axis=-1)
    _, steps, size = joint.shape
    mean = np.broadcast_to(joint.mean(axis=(0, 1)), (steps, size))
    rest = joint - mean
    covariance = np.empty((steps, size, steps, size))
    for lag in range(steps):
        late, early = rest[:, lag:], rest[:, : steps - lag]
        average = np.einsum("nki,nkj->ij", late, early) / (late.shape[0] * late.shape[1])
        for early_step in range(steps - lag):
            covariance[early_step + lag, :, early_step] = average
            covariance[early_step, :, early_step + lag] = average.T
    return Moments(mean=mean, covariance=_positive(covariance))


def _positive(covariance: np.ndarray) -> np.ndarray:
    """The nearest positive semidefinite matrix; averages by lag need not be one."""
    side = covariance.shape[0] * covariance.shape[1]
    matrix = covariance.reshape(side, side)
    scale = np.sqrt(np.maximum(np.diag(matrix), np.finfo(float).tiny))
    values, vectors = np.linalg.eigh(matrix / scale / scale[:, None])
    fixed = (vectors * np.maximum(values, 0.0)) @ vectors.T * scale * scale[:, None]
    return np.asarray(fixed).reshape(covariance.shape)


def shrunk(sample: Moments, stationary: Moments, weight: float) -> Moments:
    """The mixture (1 - weight) sample + weight stationary."""
    return Moments(
        mean=(1 - weight) * sample.mean + weight * stationary.mean,
        covariance=(1 - weight) * sample.covariance + weight * stationary.covariance,
    )


@dataclass(frozen=True, kw_only=True)
class CausalFilter:
    """Xhat_k = offset_k + sum over j <= k of weight[k, j] . Z_j.

    Attributes:
        offset: Shape (steps,).
        weight: Shape (steps, steps, size); 0 where j > k.
    """

    offset: np.ndarray
    weight: np.ndarray

    def estimates(self, outputs: np.ndarray) -> np.ndarray:
        """Estimates from fusion outputs of shape (..., steps, size); shape (..., steps)."""
        total: np.ndarray = np.einsum("...js,kjs->...k", outputs, self.weight) + self.offset
        return total

    def expected_mse(
        self, state: np.ndarray, sums: np.ndarray, gains: np.ndarray, noise_variance: float
    ) -> float:
        """Mean squared error on given windows, the expectation over the noise in closed form."""
        bias = self.estimates(gains[:, None] * sums) - state
        return float(np.mean(bias**2) + noise_variance * np.sum(self.weight**2) / len(self.offset))


def lmmse(
    moments: Moments, gains: np.ndarray, *, noise_variance: float, ridge: float
) -> CausalFilter:
    """The causal filter that is best for these moments: E[X_k | Z_1 .. Z_k] if all is Gaussian.

    One Cholesky factor serves all steps: with cov(Z) = L L^T in time order, the innovations up to
    step k are the first rows of L^-1 (Z - mean).

    Args:
        moments: Of the state and the sums.
        gains: Shape (steps,).
        noise_variance: Variance of the noise in each coordinate of Z.
        ridge: Share of each coordinate's variance that is added to it against overfitting.
    """
    steps, size = moments.mean.shape[0], moments.mean.shape[1] - 1
    side = steps * size
    scale = np.repeat(gains, size)
    of_sums = moments.covariance[:, 1:, :, 1:].reshape(side, side)
    of_outputs = of_sums * scale * scale[:, None]
    variance = np.diag(of_outputs)
    least = np.finfo(float).eps * max(float(variance.max()), 1.0)
    of_outputs = of_outputs + np.diag(noise_variance + ridge * variance + least)
    with_state = moments.covariance[:, 1:, :, 0].reshape(side, steps) * scale[:, None]
    lower = cholesky(of_outputs, lower=True)
    known = np.repeat(np.arange(steps), size)[:, None] <= np.arange(steps)
    innovation_weight = np.where(known, solve_triangular(lower, with_state, lower=True), 0.0)
    flat = solve_triangular(lower, innovation_weight, lower=True, trans="T").T
    flat[~known.T] = 0.0  # exact zeros already, up to rounding
    weight = flat.reshape(steps, steps, size)
    mean_output = gains[:, None] * moments.mean[:, 1:]
    offset = moments.mean[:, 0] - np.einsum("js,kjs->k", mean_output, weight)
    return CausalFilter(offset=offset, weight=weight)


@dataclass(frozen=True, kw_only=True)
class Windows:
    """State and sums of some windows, in time order, whose people are not protected.

    Attributes:
        state: Shape (windows, steps).
        sums: Shape (windows, steps, size).
    """

    state: np.ndarray
    sums: np.ndarray

    def __len__(self) -> int:
        return len(self.state)

    def __getitem__(self, chosen: np.ndarray) -> Windows:
        """The windows where `chosen` is true."""
        return Windows(state=self.state[chosen], sums=self.sums[chosen])


@dataclass(frozen=True, kw_only=True)
class Regularisation:
    """What keeps a filter from learning the accidents of a few windows.

    Attributes:
        shrinkage: Weight of the stationary moments, 0 to 1.
        ridge: As in `lmmse`.
    """

    shrinkage: float
    ridge: float


USUAL = Regularisation(shrinkage=0.9, ridge=0.1)
"""Good enough to compare features by."""
CANDIDATES = tuple(
    Regularisation(shrinkage=shrinkage, ridge=ridge)
    for shrinkage in (0.3, 0.6, 0.9, 1.0)
    for ridge in (1e-9, 1e-2, 0.1, 1.0, 10.0)
)


def fit(
    windows: Windows, gains: np.ndarray, *, noise_variance: float, how: Regularisation
) -> CausalFilter:
    """The filter for the moments of `windows`."""
    moments = shrunk(
        sample_moments(windows.state, windows.sums),
        stationary_moments(windows.state, windows.sums),
        how.shrinkage,
    )
    return lmmse(moments, gains, noise_variance=noise_variance, ridge=how.ridge)


def held_out_mse(
    windows: Windows,
    gains: np.ndarray,
    *,
    noise_variance: float,
    candidates: Sequence[Regularisation],
) -> list[float]:
    """Expected error of each candidate on windows it was not fitted on.

    The windows are cut into a few blocks contiguous in time; each is held out once.
    """
    errors = np.zeros(len(candidates))
    for fold in np.array_split(np.arange(len(windows)), min(FOLDS, len(windows))):
        held = np.isin(np.arange(len(windows)), fold)
        rest = windows[~held]
        sample = sample_moments(rest.state, rest.sums)
        stationary = stationary_moments(rest.state, rest.sums)
        for index, how in enumerate(candidates):
            found = lmmse(
                shrunk(sample, stationary, how.shrinkage),
                gains,
                noise_variance=noise_variance,
                ridge=how.ridge,
            )
            error = found.expected_mse(
                windows.state[held], windows.sums[held], gains, noise_variance
            )
            errors[index] += error * held.sum() / len(windows)
    return errors.tolist()
