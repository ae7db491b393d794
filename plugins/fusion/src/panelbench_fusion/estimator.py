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

    @property
    def of_sums(self) -> np.ndarray:
        """Covariance of the sums in time order, shape (steps * size, steps * size)."""
        side = self.mean.shape[0] * (self.mean.shape[1] - 1)
        return self.covariance[:, 1:, :, 1:].reshape(side, side)

    @property
    def with_state(self) -> np.ndarray:
        """Covariance of the sums with the state, shape (steps * size, steps)."""
        return self.covariance[:, 1:, :, 0].reshape(-1, self.mean.shape[0])

    def weighted(self, weights: np.ndarray) -> Moments:
        """Of the state and each sum times its weight; `weights` has the shape (size,)."""
        scale = np.concatenate([[1.0], weights])
        return Moments(
            mean=self.mean * scale,
            covariance=self.covariance * scale[:, None, None] * scale,
        )

    def ridged(self, ridge: float) -> Moments:
        """With `ridge` times each sum's variance added to it, against overfitting."""
        steps, size = self.mean.shape[0], self.mean.shape[1] - 1
        covariance = self.covariance.copy()
        step, place = np.repeat(np.arange(steps), size), np.tile(np.arange(1, size + 1), steps)
        covariance[step, place, step, place] *= 1 + ridge
        return Moments(mean=self.mean, covariance=covariance)


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
    rest = (joint - mean).reshape(len(joint), -1)
    products = (rest.T @ rest / len(joint)).reshape(steps, size, steps, size)
    lag = np.arange(steps)[:, None] - np.arange(steps) + steps - 1
    pairs = np.bincount(lag.ravel())
    covariance = np.empty_like(products)
    for i in range(size):
        for j in range(size):
            total = np.bincount(lag.ravel(), weights=products[:, i, :, j].ravel())
            covariance[:, i, :, j] = (total / pairs)[lag]
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
    """Xhat_k = offset_k + sum over j <= k + lag of weight[k, j] . Z_j.

    Attributes:
        offset: Shape (steps,).
        weight: Shape (steps, steps, size); 0 where j > k + lag, lag 0 unless asked for.
    """

    offset: np.ndarray
    weight: np.ndarray

    def estimates(self, outputs: np.ndarray) -> np.ndarray:
        """Estimates from fusion outputs of shape (..., steps, size); shape (..., steps)."""
        steps = len(self.offset)
        flat = outputs.reshape(*outputs.shape[:-2], -1)
        total: np.ndarray = flat @ self.weight.reshape(steps, -1).T + self.offset
        return total

    def expected_mse(
        self, state: np.ndarray, sums: np.ndarray, gains: np.ndarray, noise_variance: float
    ) -> float:
        """Mean squared error on given windows, the expectation over the noise in closed form."""
        return self._expected_mse(state, _passed(sums, gains), noise_variance)

    def _expected_mse(self, state: np.ndarray, passed: np.ndarray, noise_variance: float) -> float:
        bias = self.estimates(passed) - state
        return float(np.mean(bias**2) + noise_variance * np.sum(self.weight**2) / len(self.offset))


def _passed(sums: np.ndarray, gains: np.ndarray) -> np.ndarray:
    """The sums after the channel, without noise; `gains` as in `lmmse`."""
    if gains.ndim == 1:
        return np.asarray(gains[:, None] * sums)
    flat = sums.reshape(*sums.shape[:-2], -1)
    return np.asarray(flat @ gains.T).reshape(*sums.shape[:-1], -1)


@dataclass(frozen=True, kw_only=True)
class _Passed:
    """Moments behind a channel, before noise.

    Attributes:
        state_mean: Shape (steps,).
        mean: Of the outputs in time order, shape (outputs,).
        covariance: Of the outputs, shape (outputs, outputs).
        of_ridge: What a ridge of 1 adds to it.
        with_state: Covariance of the outputs with the state, shape (outputs, steps).
    """

    state_mean: np.ndarray
    mean: np.ndarray
    covariance: np.ndarray
    of_ridge: np.ndarray
    with_state: np.ndarray

    @classmethod
    def of(cls, moments: Moments, gains: np.ndarray) -> _Passed:
        """The moments behind a channel; `gains` as in `lmmse`."""
        variance = np.diag(moments.of_sums)
        if gains.ndim == 1:
            scale = np.repeat(gains, len(variance) // len(gains))
            covariance = moments.of_sums * scale * scale[:, None]
            of_ridge = np.diag(variance * scale**2)
            with_state = moments.with_state * scale[:, None]
        else:
            covariance = gains @ moments.of_sums @ gains.T
            of_ridge = (gains * variance) @ gains.T
            with_state = gains @ moments.with_state
        return cls(
            state_mean=moments.mean[:, 0],
            mean=_passed(moments.mean[:, 1:], gains).ravel(),
            covariance=covariance,
            of_ridge=of_ridge,
            with_state=with_state,
        )

    def mixed(self, other: _Passed, weight: float) -> _Passed:
        """(1 - weight) times these moments plus weight times others."""
        return _Passed(
            **{
                name: (1 - weight) * value + weight * vars(other)[name]
                for name, value in vars(self).items()
            }
        )

    def filter(self, *, noise_variance: float, ridge: float, lag: int) -> CausalFilter:
        """The best causal filter; see `lmmse`."""
        steps = len(self.state_mean)
        rows = len(self.mean) // steps
        of_outputs = self.covariance + ridge * self.of_ridge
        least = np.finfo(float).eps * max(float(np.diag(of_outputs).max()), 1.0)
        of_outputs[np.diag_indices(len(of_outputs))] += noise_variance + least
        lower = cholesky(of_outputs, lower=True, check_finite=False)
        known = np.repeat(np.arange(steps), rows)[:, None] <= np.arange(steps) + lag
        innovation_weight = np.where(known, solve_triangular(lower, self.with_state, lower=True), 0)
        flat = solve_triangular(lower, innovation_weight, lower=True, trans="T").T
        flat[~known.T] = 0.0  # exact zeros already, up to rounding
        return CausalFilter(
            offset=self.state_mean - flat @ self.mean, weight=flat.reshape(steps, steps, rows)
        )


def lmmse(
    moments: Moments, gains: np.ndarray, *, noise_variance: float, ridge: float, lag: int = 0
) -> CausalFilter:
    """The causal filter that is best for these moments: E[X_k | Z_1 .. Z_k] if all is Gaussian.

    One Cholesky factor serves all steps: with cov(Z) = L L^T in time order, the innovations up to
    step k are the first rows of L^-1 (Z - mean).

    Args:
        moments: Of the state and the sums.
        gains: Shape (steps,), one gain a step, or the matrix of a causal linear channel in time
            order, shape (steps * rows, steps * size).
        noise_variance: Variance of the noise in each coordinate of Z.
        ridge: Share of each sum's variance that is added to it against overfitting.
        lag: Steps that an estimate may wait: it is E[X_k | Z_1 .. Z_(k + lag)].
    """
    passed = _Passed.of(moments, gains)
    return passed.filter(noise_variance=noise_variance, ridge=ridge, lag=lag)


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


MODEL = Regularisation(shrinkage=1.0, ridge=1e-9)
"""For the model that a channel is chosen by: smooth, so that gains do not follow accidents."""
USUAL = Regularisation(shrinkage=0.9, ridge=0.1)
"""Good enough to compare features by."""
CANDIDATES = tuple(
    Regularisation(shrinkage=shrinkage, ridge=ridge)
    for shrinkage in (0.3, 0.6, 0.9, 1.0)
    for ridge in (1e-9, 1e-2, 0.1, 1.0, 10.0)
)


class Evidence:
    """Windows to fit on, with their moments, for all of them and without each of a few blocks.

    The blocks are contiguous in time; each is held out once. Moments are taken once, and serve
    every channel and every regularisation that is compared.
    """

    def __init__(self, windows: Windows) -> None:
        self.windows = windows
        count = len(windows)
        self._all = _both(windows)
        self._folds = []
        for fold in np.array_split(np.arange(count), min(FOLDS, count)):
            held = np.isin(np.arange(count), fold)
            self._folds.append((windows[held], *_both(windows[~held])))

    def moments(self, shrinkage: float) -> Moments:
        """The moments of all windows."""
        return shrunk(*self._all, shrinkage)

    def fit(
        self, gains: np.ndarray, *, noise_variance: float, how: Regularisation, lag: int = 0
    ) -> CausalFilter:
        """The filter for the moments of all windows; `gains` and `lag` as in `lmmse`."""
        moments = self.moments(how.shrinkage)
        return lmmse(moments, gains, noise_variance=noise_variance, ridge=how.ridge, lag=lag)

    def held_out_mse(
        self,
        gains: np.ndarray,
        *,
        noise_variance: float,
        candidates: Sequence[Regularisation],
        lag: int = 0,
    ) -> list[float]:
        """Expected error of each candidate on windows it was not fitted on."""
        errors = np.zeros(len(candidates))
        for held, sample, stationary in self._folds:
            passed = _passed(held.sums, gains)
            behind = _Passed.of(sample, gains), _Passed.of(stationary, gains)
            for place, how in enumerate(candidates):
                found = behind[0].mixed(behind[1], how.shrinkage)
                filter_ = found.filter(noise_variance=noise_variance, ridge=how.ridge, lag=lag)
                error = filter_._expected_mse(held.state, passed, noise_variance)  # noqa: SLF001 - of this module
                errors[place] += len(held) / len(self.windows) * error
        return [float(error) for error in errors]


def _both(windows: Windows) -> tuple[Moments, Moments]:
    return (
        sample_moments(windows.state, windows.sums),
        stationary_moments(windows.state, windows.sums),
    )
