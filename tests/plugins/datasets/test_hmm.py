from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from panelbench import DataError, UserTables
from panelbench_datasets.hmm import NUMERIC, Hmm, HmmTypes, population, simulate


def test_the_population_does_not_depend_on_the_random_stream():
    first = Hmm(users=10, test_users=5).load(rng=np.random.default_rng(1))
    second = Hmm(users=10, test_users=5).load(rng=np.random.default_rng(2))
    assert first.extra == second.extra
    assert first.schema == second.schema
    assert not first.train.equals(second.train)


@pytest.mark.parametrize("types", [False, True])
def test_the_parameters_are_those_of_hmm_v1(types):
    truth = population(types=types)
    assert truth.means.shape == (4, 5)
    assert np.diagonal(truth.transition, axis1=1, axis2=2) == pytest.approx(0.85, abs=2e-4)
    assert truth.transition.sum(axis=2) == pytest.approx(1)
    assert truth.initial.sum(axis=1) == pytest.approx(1)
    assert np.diagonal(truth.emission) == pytest.approx(0.7)
    assert all(np.linalg.cond(covariance) <= 10 for covariance in truth.covariances)


def test_nearest_means_are_two_and_a_half_standard_deviations_apart():
    truth = population(types=False)
    inverse = np.linalg.inv(truth.covariances.mean(axis=0))
    apart = truth.means[:, None] - truth.means[None]
    distance = np.sqrt(np.einsum("ijk,kl,ijl->ij", apart, inverse, apart))
    np.fill_diagonal(distance, np.inf)
    assert distance.min(axis=1).mean() == pytest.approx(2.5, abs=1e-3)


def test_the_population_is_known_to_the_last_digit():
    # The legacy generator's stream is frozen, so this number is the same on every machine.
    truth = population(types=False)
    assert truth.means[1].tolist() == [11.575, 11.575, 10.0, 10.0, 10.0]
    assert truth.transition[0, 0].tolist() == [0.85, 0.0456, 0.0713, 0.0331]


def test_lengths_are_four_plus_poisson_eight_cut_at_fifty(rng):
    data = Hmm(users=20_000, test_users=1).load(rng=rng)
    lengths = data.train["user"].value_counts()
    assert lengths.min() >= 4
    assert lengths.max() <= 50
    # Standard error of the mean sqrt(8 / 20000) = 0.02; 5 of them is a false alarm of 6e-7.
    assert lengths.mean() == pytest.approx(12, abs=0.1)


def test_equal_mean_and_fewest_rows_give_equal_lengths(rng):
    data = Hmm(users=50, test_users=5, min_rows=7, mean_rows=7).load(rng=rng)
    assert set(data.train["user"].value_counts()) == {7}


def test_the_sample_has_the_moments_of_the_true_parameters(rng):
    truth = population(types=False)
    data = Hmm(users=20_000, test_users=1, min_rows=2, mean_rows=2).load(rng=rng)
    first = data.train[data.train["time"] == 0]
    # Uniform first state: the mean is that of the means. Its standard error is below
    # 1.4 / sqrt(20000) = 0.01; 5.5 of them for five columns is a false alarm of 2e-7.
    for index, column in enumerate(data.schema.numeric):
        assert first[column.name].mean() == pytest.approx(truth.means[:, index].mean(), abs=0.055)


def test_states_follow_the_transition_matrix(rng):
    # Emissions without noise show the states.
    shown = population(types=False)
    means = np.arange(4.0)[:, None] * np.ones(5) + 10
    shown = replace(shown, means=means, covariances=np.tile(np.eye(5) * 1e-12, (4, 1, 1)))
    frame = simulate(shown, np.full(40_000, 2), rng)
    state = np.rint(frame["Glomozole"].to_numpy() - 10).astype(int).reshape(-1, 2)
    counts = np.zeros((4, 4))
    np.add.at(counts, (state[:, 0], state[:, 1]), 1)
    share = counts / counts.sum(axis=1, keepdims=True)
    # Standard error at most sqrt(.25 / 9500) = 0.0051; 5.5 of them for 16 cells: 6e-7.
    assert np.abs(share - shown.transition[0]).max() < 0.029


def test_emissions_have_the_covariance_and_the_levels_of_their_state(rng):
    truth = population(types=False)
    rows = 40_000
    for state in range(4):
        only = replace(truth, initial=np.eye(4)[[state]])
        frame = simulate(only, np.ones(rows, dtype=int), rng)
        values = frame[list(NUMERIC)].to_numpy()
        # Variances stay below 3: standard errors at most 3 sqrt(2 / 40000) = 0.021 and, for the
        # levels, 0.0025; 5.5 of them for 100 and 16 numbers are a false alarm of 4e-6.
        assert np.abs(np.cov(values.T) - truth.covariances[state]).max() < 0.12
        share = frame["Zolronide"].value_counts(normalize=True, sort=False).to_numpy()
        assert np.abs(share - truth.emission[state]).max() < 0.014


def test_two_types_differ_in_first_state_and_direction():
    truth = population(types=True)
    assert truth.initial[0].argmax() == 0
    assert truth.initial[1].argmax() == 3
    assert truth.transition[0, 0, 1] > 5 * truth.transition[1, 0, 1]


def test_the_first_state_tells_the_two_types_apart(rng):
    # Bayes on the first state alone is right 0.98 of the time where the state is 0 or 3; the
    # stationary distributions of both types are equal, so a later row alone says nothing.
    truth = population(types=True)
    for transition in truth.transition:
        assert np.full(4, 0.25) @ transition == pytest.approx(np.full(4, 0.25))
    assert truth.initial[0, 0] / truth.initial[:, 0].sum() == pytest.approx(0.97 / 0.98)
    assert HmmTypes(users=10, test_users=2).load(rng=rng).extra["hmm"]["weights"] == [0.5, 0.5]


def test_values_stay_inside_the_public_bounds(rng):
    data = HmmTypes(users=5000, test_users=10).load(rng=rng)
    for column in data.schema.numeric:
        assert data.train[column.name].between(column.lower, column.upper).all()


def test_a_mechanism_sees_no_true_parameters(rng):
    data = Hmm(users=10, test_users=5).load(rng=rng)
    assert "hmm" in data.extra
    assert not data.for_mechanism().extra


def test_the_extra_facts_survive_storage(rng):
    data = Hmm(users=10, test_users=5).load(rng=rng)
    assert UserTables.from_arrays(*data.to_arrays()).extra == data.extra


@pytest.mark.parametrize(
    "fields", [{"users": 0}, {"min_rows": 0}, {"mean_rows": 3.0}, {"mean_rows": 60.0}]
)
def test_impossible_sizes_are_refused_at_birth(fields):
    with pytest.raises(ValueError, match="got"):
        Hmm(**fields)


def test_an_unknown_column_of_the_schema_is_a_data_error(rng):
    with pytest.raises(DataError, match="No column"):
        Hmm(users=10, test_users=5).load(rng=rng).schema["nothing"]
