"""Budget distribution and absorption: a charged test decides at each step whether to publish."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from panelbench_fusion.pursuit import Decision, Pursuit

if TYPE_CHECKING:
    from panelbench_fusion.estimator import Moments


@dataclass(frozen=True, kw_only=True)
class BudgetDistribution(Pursuit):
    """Half of what is left goes to each publication, after Kellaris et al. 2014, with w = K.

    Half of the budget, in equal parts, releases a noisy sum at every step: the dissimilarity test.
    The step is published where the tested count differs from the last published one by more than
    the standard deviation of the difference that noise alone would make. Estimates use tests and
    publications alike, which the original does not.

    Formal guarantee:
        As in `Fast`: tests and publications are Gaussian releases of S_k, whose gains depend on
        earlier releases only (a publication's on the test of its own step too), and every one is
        charged to a `ledger.Ledger` of Q = 2 B_G / alpha before its noise is drawn. So the sum of
        squared gains times the squared L2 sensitivity, 1 under both relations, is at most Q on
        every path, and fully adaptive Gaussian composition gives mu-GDP with mu^2 = Q.

    Attributes:
        draws: As in `Pursuit`.
        count_weight: As in `Pursuit`.
        values: As in `Pursuit`.
        trip_windows: As in `Pursuit`.
    """

    name: ClassVar[str] = "bd"
    test_share: ClassVar[float] = 0.5

    def decision(self, total: float, moments: Moments, paths: tuple[int, ...]) -> Decision:
        """Halving."""
        return _Halving(total, len(moments.mean), paths)


@dataclass(frozen=True, kw_only=True)
class BudgetAbsorption(Pursuit):
    """A publication absorbs the shares of skipped steps, after Kellaris et al. 2014, with w = K.

    Tests are those of `BudgetDistribution`. Every step has an equal share of the other half; a
    publication uses the shares since the last one, and then as many steps as it absorbed must
    pass without one.

    Formal guarantee:
        That of `BudgetDistribution`.

    Attributes:
        draws: As in `Pursuit`.
        count_weight: As in `Pursuit`.
        values: As in `Pursuit`.
        trip_windows: As in `Pursuit`.
    """

    name: ClassVar[str] = "ba"
    test_share: ClassVar[float] = 0.5

    def decision(self, total: float, moments: Moments, paths: tuple[int, ...]) -> Decision:
        """Absorption."""
        return _Absorbing(total, len(moments.mean), paths)


class _Testing(Decision):
    """Publishes where the test says that the count has changed."""

    def __init__(self, total: float, steps: int, paths: tuple[int, ...]) -> None:
        self._test_cost = total / steps  # the other half of the budget, in equal parts
        self._published = np.full(paths, -np.inf)

    def ask(self, k: int, tested: np.ndarray) -> np.ndarray:
        cost = self.offered(k)
        allowed = np.maximum(cost, np.finfo(float).tiny)
        distance = np.abs(tested[..., 0] / np.sqrt(self._test_cost) - self._published)
        changed = distance > np.sqrt(1 / self._test_cost + 1 / allowed)
        return np.where(changed & (cost > 0), cost, 0.0)

    def hear(
        self,
        k: int,
        gains: np.ndarray,
        outputs: np.ndarray,
        change: np.ndarray,  # noqa: ARG002 - the count is compared, not the estimate
    ) -> None:
        applied = gains > 0
        count = outputs[..., 0] / np.where(applied, gains, 1.0)
        self._published = np.where(applied, count, self._published)
        self.used(k, gains**2)

    def offered(self, k: int) -> np.ndarray:
        """What a publication at step k would spend."""
        raise NotImplementedError

    def used(self, k: int, cost: np.ndarray) -> None:
        """Told what was spent at step k."""
        raise NotImplementedError


class _Halving(_Testing):
    def __init__(self, total: float, steps: int, paths: tuple[int, ...]) -> None:
        super().__init__(total, steps, paths)
        self._left = np.full(paths, total)

    def offered(self, k: int) -> np.ndarray:  # noqa: ARG002 - at any step
        return self._left / 2

    def used(self, k: int, cost: np.ndarray) -> None:  # noqa: ARG002 - at any step
        self._left = np.maximum(self._left - cost, 0.0)


class _Absorbing(_Testing):
    def __init__(self, total: float, steps: int, paths: tuple[int, ...]) -> None:
        super().__init__(total, steps, paths)
        self._share = total / steps
        self._free = np.zeros(paths)  # the first step whose share nothing has used

    def offered(self, k: int) -> np.ndarray:
        return np.maximum(k + 1 - self._free, 0.0) * self._share

    def used(self, k: int, cost: np.ndarray) -> None:
        absorbed = np.round(cost / self._share)
        self._free = np.where(cost > 0, k + absorbed, self._free)
