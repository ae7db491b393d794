"""What an adversary could measure, and the figures that are quoted for it."""

import math

import numpy as np
import pytest

from panelbench.accounting import (
    gaussian_epsilon,
    renyi_epsilon,
    renyi_epsilon_mironov,
    zcdp_epsilon,
)
from panelbench_fusion.channel import OnlineChannel
from panelbench_fusion.ledger import Ledger

STEPS = 20
PATHS = 400_000
TOTAL = 1.0
"""Q; B_G at alpha = 2 is the same."""


def aggressive(k, last):
    """Asks for more after large outputs, and for all that is left at the end."""
    if k == STEPS - 1:
        return np.full(last.shape, 1e9)
    return 0.25 * np.exp(0.4 * last)


def measured(contribution):
    """The Renyi divergence of order 2 between one vehicle present and none, and its error.

    E_Q[(P/Q)^2] = E_P[P/Q] is estimated from paths of the true mechanism with the vehicle present,
    whose sum is `contribution`; the densities of every step given the outputs before are exact.
    """
    ledger = Ledger(TOTAL, l2_sensitivity=1.0, paths=(PATHS, 1))
    sums = np.full((1, STEPS, 1), contribution)
    channel = OnlineChannel(sums, ledger, rng=np.random.default_rng(1))
    last, log_ratio = np.zeros((PATHS, 1)), np.zeros((PATHS, 1))
    for k in range(STEPS):
        outputs, gains = channel.step(k, aggressive(k, last))
        last = outputs[..., 0]
        shift = gains * contribution
        log_ratio += shift * last - shift**2 / 2
    assert sum(ledger.charged).max() <= TOTAL
    ratio = np.exp(log_ratio)
    error = ratio.std() / math.sqrt(PATHS) / ratio.mean()
    return math.log(ratio.mean()), error


def test_p19_the_measured_divergence_of_an_adaptive_release_is_within_its_budget():
    """Failed when the ledger charged a quarter of each step: measured 3.11."""
    divergence, error = measured(1.0)
    assert divergence <= TOTAL + 3 * error
    assert divergence >= 0.9 * TOTAL  # the audit has the power to see the loss that is there


def test_p19_a_gain_that_is_half_larger_where_the_vehicle_is_present_fails_the_audit():
    """The ledger reads no more than before; the audit sees 1.5^2 times the budget."""
    divergence, error = measured(1.5)
    assert divergence > TOTAL + 3 * error
    assert divergence == pytest.approx(2.25 * TOTAL, rel=0.1)


@pytest.mark.parametrize(
    ("alpha", "b_g", "expected"),
    [
        (2, 0.1, (11.61, 10.23, 1.31, 1.20)),
        (2, 1.5, (13.01, 11.63, 5.98, 5.55)),
        (2, 5, (16.51, 15.13, 12.30, 11.48)),
        (5, 0.25, (3.13, 2.50, 1.31, 1.20)),
        (5, 2, (4.88, 4.25, 4.16, 3.85)),
        (10, 1, (2.28, 1.92, 1.91, 1.76)),
        (10, 10, (11.28, 10.92, 7.08, 6.57)),
        (20, 0.1, (0.71, 0.50, 0.38, 0.34)),
        (20, 3, (3.61, 3.40, 2.40, 2.21)),
    ],
)
def test_p21_a_budget_converts_to_the_epsilons_of_the_table_each_bound_below_the_cruder(
    alpha, b_g, expected
):
    """Mironov, single order, zCDP, exact. Failed when zCDP took B_G = rho at every order."""
    rho = b_g / alpha
    found = [
        renyi_epsilon_mironov(alpha, b_g, 1e-5),
        renyi_epsilon(alpha, b_g, 1e-5),
        zcdp_epsilon(rho, 1e-5),
        gaussian_epsilon(math.sqrt(2 * rho), 1e-5),
    ]
    assert found == pytest.approx(list(expected), abs=1e-2)
    assert found == sorted(found, reverse=True)
