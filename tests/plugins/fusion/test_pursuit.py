"""Closed-form rules that spend by what they released: FAST, budget distribution, absorption."""

import dataclasses

import numpy as np
import pytest

from panelbench import Budget, NeighboringRelation, PrivacyUnit, Split
from panelbench.accounting import excess
from panelbench.testing import tiny_streams
from panelbench_fusion import pursuit
from panelbench_fusion.conditioning import Posterior
from panelbench_fusion.estimator import lmmse, sample_moments
from panelbench_fusion.fast import Fast
from panelbench_fusion.latent import latent_model
from panelbench_fusion.shares import BudgetAbsorption, BudgetDistribution

BUDGET = Budget.renyi_dp(2.0, 1.5)
MECHANISMS = [Fast(draws=3, samples=6), BudgetDistribution(draws=3), BudgetAbsorption(draws=3)]
EVERY = pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda m: m.name)
RELATIONS = pytest.mark.parametrize("relation", list(NeighboringRelation))


@pytest.fixture(scope="module")
def data():
    return tiny_streams(episodes=40)


def run(mechanism, data, budget=BUDGET, seed=0):
    return mechanism.release(data.for_mechanism(), budget, rng=np.random.default_rng(seed))


def crowded(data):
    """The dataset with all sensors present at full speed throughout the test windows."""
    test = data.episodes(Split.TEST)
    seen, there = data.observations.copy(), data.present.copy()
    seen[test], there[test] = (200.0, 45.0), True
    return dataclasses.replace(data, observations=seen, present=there)


class Replayed:
    """A channel that gives out the same outputs whatever the sums are, and charges for them."""

    def __init__(self, sums, ledger, *, rng):
        del rng
        self._ledger, self._outputs = ledger, np.random.default_rng(5)
        self._size = sums.shape[-1]

    def step(self, k, asked):
        del k
        gains = self._ledger.charge(asked)
        return self._outputs.normal(20.0, 20.0, (*gains.shape, self._size)), gains


@EVERY
def test_p01_with_equal_outputs_charges_and_estimates_are_bit_identical(
    mechanism, data, monkeypatch
):
    """Failed when the sums of the step were handed to `ask` in the place of the tested ones."""
    monkeypatch.setattr(pursuit, "OnlineChannel", Replayed)
    one, two = run(mechanism, data), run(mechanism, crowded(data))
    np.testing.assert_array_equal(one.spent, two.spent)
    np.testing.assert_array_equal(one.estimate, two.estimate)


@EVERY
@RELATIONS
def test_p03_no_path_spends_more_than_the_budget(mechanism, relation, data):
    """Failed when the ledger did not clip what was asked for at what was left."""
    budget = dataclasses.replace(BUDGET, relation=relation)
    for one in (data, crowded(data)):
        found = run(mechanism, one, budget)
        assert found.spent.shape == found.estimate.shape
        assert found.spent.sum(axis=-1).max() <= 1.5
        assert excess(found.guarantee, budget, unit=PrivacyUnit.SENSOR_TRAJECTORY) is None


@pytest.mark.parametrize("mechanism", MECHANISMS[1:], ids=lambda m: m.name)
def test_p28_every_test_of_private_data_is_charged(mechanism, data):
    """Failed when the tests had a ledger of their own."""
    found = run(mechanism, data)
    assert found.spent.min() >= 0.999 * 1.5 / 2 / data.schema.max_rows


@EVERY
def test_what_is_spent_depends_on_what_was_released(mechanism, data):
    spent = run(mechanism, data).spent
    assert (spent[0] != spent[1]).any()


@EVERY
def test_knowing_more_is_better(mechanism, data):
    truth = data.state[data.episodes(Split.TEST)]
    errors = [
        np.mean((run(mechanism, data, Budget.renyi_dp(2.0, b_g)).estimate - truth) ** 2)
        for b_g in (0.01, 1.0, 100.0)
    ]
    assert errors == sorted(errors, reverse=True)


def test_fast_samples_at_most_as_often_as_it_may(data):
    sampled = (run(Fast(draws=5, samples=3), data).spent > 0).sum(axis=-1)
    assert sampled.max() == 3


def test_conditioning_step_by_step_is_the_causal_filter():
    rng = np.random.default_rng(6)
    state, sums = rng.normal(size=(60, 5)), rng.normal(size=(60, 5, 2))
    sums[..., 0] += state.cumsum(axis=1)
    moments = sample_moments(state, sums)
    gains = np.array([1.0, 0.0, 2.0, 0.1, 3.0])
    outputs = gains[:, None] * sums + rng.normal(size=sums.shape)
    posterior = Posterior(latent_model(moments, ridge=0.1, rank=15), (60,))
    found = np.empty((60, 5))
    for k in range(5):
        posterior.update(k, np.full(60, gains[k]), outputs[:, k])
        found[:, k] = posterior.estimate(k)
    expected = lmmse(moments, gains, noise_variance=1.0, ridge=0.1).estimates(outputs)
    np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize(
    "wrong",
    [{"samples": 0}, {"set_point": 0.0}, {"pace": -1.0}, {"draws": 0}, {"count_weight": 2.0}],
)
def test_a_wrong_parameter_of_fast_is_refused_by_name(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Fast(**wrong)
