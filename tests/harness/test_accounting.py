"""Conversions, settled ledgers, excess and calibration."""

import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from panelbench import accounting as acc
from panelbench.composition import composed
from panelbench.errors import BudgetError
from panelbench.privacy import (
    Budget,
    Established,
    ExponentialEvent,
    GaussianEvent,
    Guarantee,
    LaplaceEvent,
    NeighboringRelation,
    PrivacyUnit,
    SampledGaussianEvent,
    ZeroConcentratedEvent,
)

ADD = NeighboringRelation.ADD_OR_REMOVE_ONE
REPLACE = NeighboringRelation.REPLACE_ONE
RELATIONS = pytest.mark.parametrize("relation", list(NeighboringRelation))

# fusion.md 6.4: B_G, then for alpha = 2, 5, 10, 20: Mironov / CKS / zCDP-optimised / exact
TABLE = """
0.1 | 11.61 / 10.23 / 1.31 / 1.20 | 2.98 / 2.35 / 0.79 / 0.73 | 1.38 / 1.02 / 0.55 / 0.50 | 0.71 / 0.50 / 0.38 / 0.34
0.25 | 11.76 / 10.38 / 2.17 / 1.99 | 3.13 / 2.50 / 1.31 / 1.20 | 1.53 / 1.17 / 0.90 / 0.82 | 0.86 / 0.65 / 0.62 / 0.56
0.5 | 12.01 / 10.63 / 3.19 / 2.94 | 3.38 / 2.75 / 1.91 / 1.76 | 1.78 / 1.42 / 1.31 / 1.20 | 1.11 / 0.90 / 0.90 / 0.82
1 | 12.51 / 11.13 / 4.73 / 4.38 | 3.88 / 3.25 / 2.81 / 2.59 | 2.28 / 1.92 / 1.91 / 1.76 | 1.61 / 1.40 / 1.31 / 1.20
1.5 | 13.01 / 11.63 / 5.98 / 5.55 | 4.38 / 3.75 / 3.53 / 3.27 | 2.78 / 2.42 / 2.40 / 2.21 | 2.11 / 1.90 / 1.63 / 1.50
2 | 13.51 / 12.13 / 7.08 / 6.57 | 4.88 / 4.25 / 4.16 / 3.85 | 3.28 / 2.92 / 2.81 / 2.59 | 2.61 / 2.40 / 1.91 / 1.76
3 | 14.51 / 13.13 / 9.01 / 8.39 | 5.88 / 5.25 / 5.25 / 4.87 | 4.28 / 3.92 / 3.53 / 3.27 | 3.61 / 3.40 / 2.40 / 2.21
5 | 16.51 / 15.13 / 12.30 / 11.48 | 7.88 / 7.25 / 7.08 / 6.57 | 6.28 / 5.92 / 4.73 / 4.38 | 5.61 / 5.40 / 3.19 / 2.94
10 | 21.51 / 20.13 / 19.05 / 17.86 | 12.88 / 12.25 / 10.73 / 10.00 | 11.28 / 10.92 / 7.08 / 6.57 | 10.61 / 10.40 / 4.73 / 4.38
"""  # noqa: E501 - the table keeps its rows
CELLS = [
    (float(b_g), alpha, tuple(float(x) for x in cell.split("/")))
    for b_g, *row in (line.split("|") for line in TABLE.strip().splitlines())
    for alpha, cell in zip((2.0, 5.0, 10.0, 20.0), row, strict=True)
]


def settled(ledger, relation=ADD, unit=PrivacyUnit.USER):
    return Guarantee(
        established=Established.SETTLED, unit=unit, relation=relation, ledger=tuple(ledger)
    )


def figures(ledger, relation=ADD, delta=1e-5, alpha=2.0):
    return acc.settle(settled(ledger, relation), delta=delta, alpha=alpha)


def test_the_table_has_36_cells():
    assert len(CELLS) == 36


@RELATIONS
@pytest.mark.parametrize(("b_g", "alpha", "figures_of_cell"), CELLS)
def test_every_cell_of_the_conversion_table_is_met(b_g, alpha, figures_of_cell, relation):
    mironov, cks, zcdp, exact = figures_of_cell
    budget = Budget.renyi_dp(alpha, b_g, relation=relation, delta=1e-5)
    spent = acc.equivalents(budget)
    assert acc.renyi_epsilon_mironov(alpha, b_g, 1e-5) == pytest.approx(mironov, abs=1e-2)
    assert spent.epsilon_single_order == pytest.approx(cks, abs=1e-2)
    assert spent.epsilon_zcdp == pytest.approx(zcdp, abs=1e-2)
    assert spent.epsilon == pytest.approx(exact, abs=1e-2)
    # a mechanism with the true sensitivity of the relation settles to the same figures
    sensitivity = 1.0 if relation is ADD else math.sqrt(2)
    stddev = acc.gaussian_stddev(budget, l2_sensitivity=sensitivity, count=100)
    ledger = (GaussianEvent(stddev=stddev, l2_sensitivity=sensitivity, count=100),)
    found = figures(ledger, relation, alpha=alpha)
    assert found.epsilon == pytest.approx(exact, abs=1e-2)
    assert found.b_g == pytest.approx(b_g, rel=1e-12)
    assert acc.excess(settled(ledger, relation), budget, unit=PrivacyUnit.USER) is None


def test_a_replace_one_gaussian_with_true_sensitivity_is_not_doubled_or_halved():
    ledger = (GaussianEvent(stddev=1.0, l2_sensitivity=1.0),)
    assert figures(ledger, REPLACE).epsilon == pytest.approx(4.38, abs=1e-2)
    mixed = (*ledger, LaplaceEvent(scale=1e6, l1_sensitivity=1.0))
    assert figures(mixed, REPLACE).epsilon == pytest.approx(4.377, rel=5e-3)


def test_the_library_itself_still_has_the_trap():
    import dp_accounting  # noqa: PLC0415 - takes 1.7 s
    from dp_accounting.pld import PLDAccountant  # noqa: PLC0415 - takes 1.7 s
    from dp_accounting.rdp import RdpAccountant  # noqa: PLC0415 - takes 1.7 s

    relation = dp_accounting.NeighboringRelation.REPLACE_ONE
    event = dp_accounting.GaussianDpEvent(1.0)
    rdp = RdpAccountant(neighboring_relation=relation).compose(event).get_epsilon(1e-5)
    pld = PLDAccountant(relation).compose(event).get_epsilon(1e-5)
    assert rdp == pytest.approx(4.73, abs=1e-2)
    assert pld == pytest.approx(10.00, abs=1e-2)


@pytest.mark.parametrize("mu", [0.1, 0.5, 1.0, 2.0, 4.0])
@RELATIONS
def test_the_adapter_meets_the_closed_form_of_the_gaussian_within_half_a_percent_and_never_below(
    mu, relation
):
    ledger = (GaussianEvent(stddev=3.0, l2_sensitivity=3.0 * mu / 2, count=4),)
    exact = acc.gaussian_epsilon(mu, 1e-5)
    epsilon, b_g = composed(ledger, relation, 1e-5, 2.0)
    assert exact <= epsilon <= exact * 1.005
    assert b_g == pytest.approx(mu**2)


def test_a_sampled_gaussian_with_probability_one_is_the_gaussian():
    event = SampledGaussianEvent(stddev=2.0, clipping_norm=1.0, sampling_probability=1.0, count=4)
    assert figures((event,)).epsilon == pytest.approx(acc.gaussian_epsilon(1.0, 1e-5), rel=5e-3)
    # replacing one unit moves the sum by twice the clipping norm
    exact = acc.gaussian_epsilon(2.0, 1e-5)
    assert figures((event,), REPLACE).epsilon == pytest.approx(exact, rel=5e-3)


def test_sampled_gaussians_under_replace_one_have_no_renyi_bound_and_such_a_budget_refuses_them():
    event = SampledGaussianEvent(stddev=1.0, clipping_norm=1.0, sampling_probability=0.01)
    assert figures((event,), REPLACE).b_g is None
    reason = acc.excess(
        settled((event,), REPLACE),
        Budget.renyi_dp(2.0, 100.0, relation=REPLACE),
        unit=PrivacyUnit.USER,
    )
    assert reason is not None
    assert "b_g" in reason


def test_a_known_run_of_dp_sgd_settles_to_its_epsilon():
    # path.md 2.1: multiplier 0.932, batch 1024 of 92,577 users, 271 steps. The RDP accountant
    # says epsilon 2.00, the PLD accountant 1.518
    event = SampledGaussianEvent(
        stddev=0.932, clipping_norm=1.0, sampling_probability=1024 / 92_577, count=271
    )
    epsilon = figures((event,), delta=92_577**-1.1).epsilon
    assert epsilon == pytest.approx(1.518, rel=2e-3)


def test_one_laplace_event_has_its_known_curve():
    # delta(e) = 1 - exp((e - epsilon) / 2) for e <= epsilon
    ledger = (LaplaceEvent(scale=2.0, l1_sensitivity=2.0),)
    delta = 1 - math.exp((0.5 - 1.0) / 2)
    assert figures(ledger, delta=delta).epsilon == pytest.approx(0.5, abs=1e-3)
    found = figures(ledger)
    assert found.epsilon == pytest.approx(1.0, abs=1e-3)
    assert found.rho == pytest.approx(0.5)
    renyi = math.log(2 / 3 * math.e + 1 / 3 * math.exp(-2))  # Mironov 2017, Proposition 6
    assert found.b_g == pytest.approx(renyi)


def test_exponential_events_compose_by_zero_concentration():
    # 100 selections with epsilon 0.1: rho = 100 * 0.01 / 8 = 0.125
    found = figures((ExponentialEvent(epsilon=0.1, count=100),))
    assert found.rho == pytest.approx(0.125)
    assert found.epsilon <= acc.zcdp_epsilon(0.125, 1e-5) * (1 + 1e-12)
    assert found.b_g == pytest.approx(0.25)
    # a single selection is at most epsilon-DP
    assert figures((ExponentialEvent(epsilon=0.1),)).epsilon <= 0.1 + 1e-3


@RELATIONS
def test_what_a_filter_held_to_rho_adds_its_rho_and_has_no_privacy_loss_distribution(relation):
    filtered = ZeroConcentratedEvent(rho=0.1, count=2)
    found = figures((GaussianEvent(stddev=2.0, l2_sensitivity=1.0), filtered), relation)
    assert found.rho == pytest.approx(0.125 + 0.2)
    assert found.epsilon == pytest.approx(acc.zcdp_epsilon(0.325, 1e-5))
    assert found.b_g == pytest.approx(2 * 0.325)
    assert found.mu is None
    # the same rho as Gaussian events alone settles to less
    assert found.epsilon > figures((GaussianEvent(stddev=1.0, l2_sensitivity=0.65**0.5),)).epsilon


def test_a_filter_beside_sampled_steps_settles_by_renyi_divergence():
    sampled = SampledGaussianEvent(
        stddev=1.0, clipping_norm=1.0, sampling_probability=0.01, count=100
    )
    alone, both = figures((sampled,)), figures((sampled, ZeroConcentratedEvent(rho=0.01)))
    assert alone.epsilon < both.epsilon < math.inf
    assert both.b_g == pytest.approx(alone.b_g + 0.02)


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 2.0, 10.0])
def test_a_mechanism_with_the_allowed_rho_just_satisfies_the_budget(epsilon):
    budget = Budget.approximate_dp(epsilon, 1e-5)
    rho = acc.rho_allowed(budget)
    assert acc.zcdp_epsilon(rho, 1e-5) == pytest.approx(epsilon, rel=1e-9)
    assert acc.zcdp_epsilon(rho, 1e-5) <= epsilon
    assert rho < acc.mu_allowed(budget) ** 2 / 2
    assert acc.rho_allowed(Budget.renyi_dp(2.0, 0.5)) == pytest.approx(0.25)


@RELATIONS
def test_a_mixed_ledger_lies_between_its_part_and_the_sum_of_its_parts(relation):
    gaussian = GaussianEvent(stddev=2.0, l2_sensitivity=1.0)
    laplace = LaplaceEvent(scale=4.0, l1_sensitivity=1.0, count=2)
    exponential = ExponentialEvent(epsilon=0.2, count=3)
    mixed = figures((gaussian, laplace, exponential), relation)
    alone = figures((gaussian,), relation)
    assert alone.epsilon < mixed.epsilon < alone.epsilon + 2 * 0.25 + 3 * 0.2
    assert mixed.rho == pytest.approx(0.125 + 2 / 32 + 3 * 0.04 / 8)
    assert mixed.mu is None


def test_a_ledger_of_thousands_of_single_events_settles_like_the_counted_one():
    gaussian = GaussianEvent(stddev=100.0, l2_sensitivity=1.0)
    exponential = ExponentialEvent(epsilon=0.02)
    counted = (
        dataclasses.replace(gaussian, count=2000),
        dataclasses.replace(exponential, count=2000),
    )
    single = figures((gaussian, exponential) * 2000)
    assert single.epsilon == pytest.approx(figures(counted).epsilon, rel=1e-9)
    assert single.rho == pytest.approx(0.1 + 0.1)


def test_a_ledger_that_is_hardly_private_settles_to_a_large_figure_and_not_to_an_error():
    found = figures((LaplaceEvent(scale=1e-3, l1_sensitivity=1.0, count=100),))
    assert found.epsilon >= 100 / 1e-3
    assert acc.excess(
        settled((LaplaceEvent(scale=1e-3, l1_sensitivity=1.0, count=100),)),
        Budget.approximate_dp(1.0, 1e-5),
        unit=PrivacyUnit.USER,
    )


def test_an_empty_ledger_spends_nothing():
    found = figures(())
    assert (found.epsilon, found.b_g, found.rho, found.mu) == (0, 0, 0, 0)


def test_what_is_not_private_has_infinite_figures_and_only_an_unlimited_budget_accepts_it():
    none = Guarantee(established=Established.NONE, unit=PrivacyUnit.USER, relation=ADD)
    found = acc.settle(none, delta=1e-5, alpha=2.0)
    assert found.epsilon == found.b_g == found.rho == found.mu == math.inf
    assert acc.excess(none, Budget.approximate_dp(1e6, 0.5), unit=PrivacyUnit.USER) is not None
    assert acc.excess(none, Budget.unlimited(), unit=PrivacyUnit.USER) is None


def test_a_declared_guarantee_keeps_its_numbers_and_must_not_exceed_delta():
    declared = Budget.approximate_dp(1.0, 1e-6)
    guarantee = Guarantee(
        established=Established.DECLARED, unit=PrivacyUnit.USER, relation=ADD, declared=declared
    )
    found = acc.settle(guarantee, delta=1e-5, alpha=2.0)
    assert (found.epsilon, found.delta, found.rho) == (1.0, 1e-6, None)
    fits = Budget.approximate_dp(1.0, 1e-5)
    assert acc.excess(guarantee, fits, unit=PrivacyUnit.USER) is None
    assert "delta" in acc.excess(guarantee, Budget.approximate_dp(1.0, 1e-7), unit=PrivacyUnit.USER)
    assert "rho" in acc.excess(guarantee, Budget.zero_concentrated_dp(9.0), unit=PrivacyUnit.USER)


def test_a_release_beyond_its_budget_relation_or_unit_is_refused_with_the_reason():
    budget = Budget.approximate_dp(1.0, 1e-5)
    stddev = acc.gaussian_stddev(budget, l2_sensitivity=1.0)
    good = settled((GaussianEvent(stddev=stddev, l2_sensitivity=1.0),))
    over = settled((GaussianEvent(stddev=stddev * (1 - 1e-6), l2_sensitivity=1.0),))
    assert acc.excess(good, budget, unit=PrivacyUnit.USER) is None
    assert "epsilon = 1" in acc.excess(over, budget, unit=PrivacyUnit.USER)
    assert "sensor" in acc.excess(good, budget, unit=PrivacyUnit.SENSOR_TRAJECTORY)
    other = Budget.approximate_dp(1.0, 1e-5, relation=REPLACE)
    assert "replace-one" in acc.excess(good, other, unit=PrivacyUnit.USER)


@pytest.mark.parametrize(
    "budget",
    [
        Budget.approximate_dp(0.3, 1e-5),
        Budget.approximate_dp(8.0, 1e-6, relation=REPLACE),
        Budget.renyi_dp(2.0, 1.5),
        Budget.zero_concentrated_dp(0.1),
    ],
    ids=str,
)
def test_calibrated_noise_satisfies_the_budget_and_one_percent_less_does_not(budget):
    def ledger(scale):
        return (
            GaussianEvent(stddev=scale, l2_sensitivity=1.0, count=3),
            ExponentialEvent(epsilon=0.5 / scale),
        )

    scale = acc.calibrate(budget, ledger)
    for factor, fits in ((1.0, True), (0.99, False)):
        guarantee = settled(ledger(scale * factor), budget.relation)
        assert (acc.excess(guarantee, budget, unit=PrivacyUnit.USER) is None) == fits


def test_calibrating_sampled_noise_meets_a_known_multiplier():
    def ledger(scale):
        return (
            SampledGaussianEvent(
                stddev=scale, clipping_norm=1.0, sampling_probability=0.01, count=200
            ),
        )

    scale = acc.calibrate(Budget.approximate_dp(2.0, 1e-5), ledger, relative=1e-3)
    assert figures(ledger(scale)).epsilon <= 2.0
    assert figures(ledger(scale * 0.99)).epsilon > 2.0


def test_an_unlimited_budget_cannot_be_calibrated():
    with pytest.raises(BudgetError, match="no noise"):
        acc.calibrate(Budget.unlimited(), lambda _: ())


MU = st.floats(1e-6, 1e3)
DELTA = st.floats(1e-12, 0.2)


@given(mu=MU, delta=DELTA, factor=st.floats(1.001, 10))
def test_epsilon_grows_with_mu(mu, delta, factor):
    small, large = acc.gaussian_epsilon(mu, delta), acc.gaussian_epsilon(mu * factor, delta)
    assert small <= large
    assert large == 0 or small < large


@given(mu=MU, delta=DELTA)
def test_the_exact_epsilon_never_exceeds_the_concentrated_one(mu, delta):
    exact = acc.gaussian_epsilon(mu, delta)
    assert exact <= acc.zcdp_epsilon(mu**2 / 2, delta) * (1 + 1e-9) + 1e-12


@given(mu=MU, delta=DELTA)
def test_epsilon_to_mu_is_the_inverse_of_mu_to_epsilon(mu, delta):
    epsilon = acc.gaussian_epsilon(mu, delta)
    if epsilon > 1e-9:
        assert acc.gaussian_mu(epsilon, delta) == pytest.approx(mu, rel=1e-9)


@given(mu=MU, epsilon=st.floats(0, 1e4))
def test_delta_is_a_probability_and_falls_with_epsilon(mu, epsilon):
    delta = acc.gaussian_delta(mu, epsilon)
    assert 0 <= acc.gaussian_delta(mu, epsilon * 1.1 + 0.1) <= delta <= 1


def test_delta_agrees_with_high_precision_values():
    mpmath = pytest.importorskip("mpmath")
    mpmath.mp.dps = 60
    for mu, epsilon in [
        (1e-6, 0),
        (1e-6, 5e-6),
        (1e-3, 4e-3),
        (0.1, 1),
        (1, 30),
        (30, 100),
        (50, 1),
    ]:
        m, e = mpmath.mpf(mu), mpmath.mpf(epsilon)
        exact = mpmath.ncdf(m / 2 - e / m) - mpmath.exp(e) * mpmath.ncdf(-m / 2 - e / m)
        assert acc.gaussian_delta(mu, epsilon) == pytest.approx(float(exact), rel=1e-11, abs=0)


@given(alpha=st.floats(1.01, 50), b_g=st.floats(1e-3, 50), delta=DELTA)
def test_a_renyi_budget_allows_exactly_the_mu_that_spends_it(alpha, b_g, delta):
    budget = Budget.renyi_dp(alpha, b_g, delta=delta)
    stddev = acc.gaussian_stddev(budget, l2_sensitivity=3.0, count=7)
    found = figures((GaussianEvent(stddev=stddev, l2_sensitivity=3.0, count=7),), alpha=alpha)
    assert found.b_g == pytest.approx(b_g)
