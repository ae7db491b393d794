"""The error of estimates, against plain loops."""

from __future__ import annotations

import math

import numpy as np
import pytest

from panelbench import (
    Column,
    DataError,
    Established,
    Estimates,
    Guarantee,
    NeighboringRelation,
    PrivacyUnit,
    Schema,
    SensorStreams,
)
from panelbench_metrics.mse import Mse

GUARANTEE = Guarantee(
    established=Established.SETTLED,
    unit=PrivacyUnit.SENSOR_TRAJECTORY,
    relation=NeighboringRelation.ADD_OR_REMOVE_ONE,
)


def streams(state, split):
    episodes, steps = state.shape
    return SensorStreams(
        schema=Schema(
            columns=(Column(name="speed"),),
            unit=PrivacyUnit.SENSOR_TRAJECTORY,
            min_rows=steps,
            max_rows=steps,
            state=Column(name="density", unit="veh/km"),
        ),
        observations=np.zeros((episodes, steps, 2, 1)),
        present=np.ones((episodes, steps, 2), dtype=bool),
        state=state,
        split=split,
        step_seconds=1.0,
    )


def estimates(estimate):
    return Estimates(estimate=estimate, spent=np.zeros(estimate.shape[-1]), guarantee=GUARANTEE)


def scores(dataset, release):
    given = Mse().score(dataset, release, rng=np.random.default_rng(0))
    return {score.component: score for score in given}


@pytest.fixture
def dataset():
    rng = np.random.default_rng(1)
    return streams(rng.normal(50, 5, (12, 4)), np.array([0] * 6 + [1] * 2 + [2] * 4))


def test_mse_is_the_mean_square_over_draws_episodes_and_steps(dataset):
    estimate = np.random.default_rng(2).normal(50, 5, (3, 4, 4))
    squares = [
        (estimate[d, e, k] - dataset.state[8 + e, k]) ** 2
        for d in range(3)
        for e in range(4)
        for k in range(4)
    ]
    got = scores(dataset, estimates(estimate))
    assert got["mse"].value == pytest.approx(sum(squares) / len(squares), rel=1e-12)
    assert got["rmse"].value == pytest.approx(math.sqrt(got["mse"].value), rel=1e-15)


def test_each_step_has_its_mse(dataset):
    estimate = dataset.state[None, 8:] + np.array([0.0, 1.0, 2.0, 3.0])
    got = scores(dataset, estimates(estimate))
    panel = got["mse"].panels["squared error at each step"]
    assert panel.lines["value"] == pytest.approx([0.0, 1.0, 4.0, 9.0])
    assert panel.x == (1.0, 2.0, 3.0, 4.0)


def test_each_window_is_a_case_and_their_mean_is_the_mse(dataset):
    estimate = dataset.state[None, 8:] + np.array([[0.0], [1.0], [2.0], [3.0]])
    got = scores(dataset, estimates(estimate))["mse"]
    assert got.cases == pytest.approx([0.0, 1.0, 4.0, 9.0])
    assert got.value == pytest.approx(3.5)


def test_the_window_shown_is_chosen_by_the_truth_alone(dataset):
    spreads = dataset.state[8:].std(axis=1)
    middle = 8 + np.argsort(spreads)[1]
    for seed in (1, 2):
        estimate = np.random.default_rng(seed).normal(50, 5, (3, 4, 4))
        panels = scores(dataset, estimates(estimate))["mse"].panels
        lines = panels["estimate and truth on the test window of median spread"].lines
        assert lines["truth"] == pytest.approx(dataset.state[middle], rel=1e-5)
        assert lines["value"] == pytest.approx(estimate[0, middle - 8], rel=1e-5)


def test_the_unit_is_that_of_the_state_squared(dataset):
    got = scores(dataset, estimates(dataset.state[None, 8:]))
    assert [got[c].unit for c in ("mse", "rmse", "nmse")] == ["(veh/km)^2", "veh/km", ""]


def test_the_truth_itself_is_perfect(dataset):
    got = scores(dataset, estimates(dataset.state[None, 8:]))
    assert {c: s.value for c, s in got.items()} == {
        c: scale.perfect for c, scale in Mse.components.items()
    }


def test_the_training_mean_has_nmse_one(dataset):
    constant = np.full((1, 4, 4), dataset.state[:6].mean())
    assert scores(dataset, estimates(constant))["nmse"].value == pytest.approx(1.0, rel=1e-12)


def test_the_validation_episodes_are_not_training_episodes(dataset):
    other = dataset.state.copy()
    other[6:8] += 1000.0
    estimate = estimates(np.full((1, 4, 4), 40.0))
    assert (
        scores(dataset, estimate)["nmse"].value
        == scores(streams(other, dataset.split), estimate)["nmse"].value
    )


def test_more_noise_is_never_better(dataset):
    noise = np.random.default_rng(3).normal(size=(200, 4, 4))
    values = [
        scores(dataset, estimates(dataset.state[None, 8:] + size * noise))["mse"].value
        for size in (0.0, 0.1, 0.5, 1.0, 4.0)
    ]
    assert values == sorted(values)


def test_nmse_is_left_out_where_the_prior_makes_no_error():
    dataset = streams(np.full((3, 2), 7.0), np.array([0, 2, 2]))
    assert set(scores(dataset, estimates(np.zeros((1, 2, 2))))) == {"mse", "rmse"}


def test_an_absurd_estimate_scores_a_finite_number(dataset):
    got = scores(dataset, estimates(np.full((1, 4, 4), 1e300)))
    assert all(math.isfinite(s.value) for s in got.values())
    assert all(math.isfinite(v) for v in got["mse"].detail.values())


def test_estimates_of_other_episodes_are_refused(dataset):
    with pytest.raises(DataError, match="test episodes"):
        scores(dataset, estimates(np.zeros((1, 3, 4))))
