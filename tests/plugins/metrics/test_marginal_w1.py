"""Marginals against scipy and counts by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import wasserstein_distance

from panelbench import DataError, UserTables
from panelbench_metrics.marginal import MarginalW1
from panelbench_metrics.samples import floor_sample, wasserstein1

METRIC = MarginalW1()
values = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30)


@given(values, values)
def test_wasserstein1_agrees_with_scipy(a, b):
    expected = wasserstein_distance(a, b)
    assert wasserstein1(np.array(a), np.array(b)) == pytest.approx(expected, rel=1e-9, abs=1e-9)


@given(values, st.floats(-1e6, 1e6))
def test_wasserstein1_of_a_shift_is_the_shift(a, shift):
    moved = np.array(a) + shift
    assert wasserstein1(np.array(a), moved) == pytest.approx(abs(shift), rel=1e-6, abs=1e-6)


def test_raw_is_the_mean_over_columns_in_their_units(dataset, as_release, scores_of):
    release = as_release(dataset.train[dataset.train["user"] < 30])
    got = scores_of(METRIC, dataset, release)["raw"]
    expected = {
        name: wasserstein_distance(dataset.test[name].dropna(), release.frame[name].dropna())
        for name in ("heart", "pressure")
    }
    assert got.detail == pytest.approx(expected, rel=1e-9)
    assert got.value == pytest.approx(np.mean(list(expected.values())), rel=1e-9)


def test_scaled_divides_by_the_deviation_of_the_train_users_not_copied(
    dataset, as_release, scores_of
):
    release = as_release(dataset.train[dataset.train["user"] < 30], copied=range(30))
    got = scores_of(METRIC, dataset, release)
    rest = dataset.train[dataset.train["user"] >= 30]
    for name in ("heart", "pressure"):
        deviation = np.nanstd(rest[name].to_numpy())
        assert got["scaled"].detail[name] == pytest.approx(got["raw"].detail[name] / deviation)


def test_scaled_uses_the_public_width_of_a_constant_column(dataset, as_release, scores_of):
    constant = UserTables(
        schema=dataset.schema, train=dataset.train.assign(heart=80.0), test=dataset.test
    )
    got = scores_of(METRIC, constant, as_release(dataset.test.assign(heart=100.0)))
    assert got["scaled"].detail["heart"] == pytest.approx(got["raw"].detail["heart"] / 300.0)


def test_tv_counts_missing_as_a_category(dataset, as_release, scores_of):
    release = as_release(dataset.test.assign(ward="a"))
    share = (dataset.test["ward"] == "a").mean()
    assert scores_of(METRIC, dataset, release)["tv"].value == pytest.approx(1.0 - share)


def test_missing_is_the_mean_difference_of_the_shares(dataset, as_release, scores_of):
    release = as_release(dataset.test.assign(heart=np.nan))
    got = scores_of(METRIC, dataset, release)["missing"]
    gap = 1.0 - dataset.test["heart"].isna().mean()
    assert got.detail == pytest.approx({"heart": gap, "pressure": 0.0, "ward": 0.0})
    assert got.value == pytest.approx(gap / 3)


def test_a_column_missing_in_the_release_scores_the_public_width(dataset, as_release, scores_of):
    got = scores_of(METRIC, dataset, as_release(dataset.test.assign(heart=np.nan)))
    assert got["raw"].detail["heart"] == 300.0


def test_a_missing_column_without_bounds_scores_the_real_range(dataset, as_release, scores_of):
    got = scores_of(METRIC, dataset, as_release(dataset.test.assign(pressure=np.nan)))
    real = np.concatenate([dataset.test["pressure"], dataset.train["pressure"]])
    assert got["raw"].detail["pressure"] == pytest.approx(np.nanmax(real) - np.nanmin(real))


def test_no_release_within_the_bounds_is_worse_than_a_missing_column(
    dataset, as_release, scores_of
):
    worst = scores_of(METRIC, dataset, as_release(dataset.test.assign(heart=np.nan)))
    for value in (0.0, 300.0):
        other = scores_of(METRIC, dataset, as_release(dataset.test.assign(heart=value)))
        assert other["raw"].detail["heart"] < worst["raw"].detail["heart"]


def test_a_column_missing_on_both_sides_is_perfect(dataset, as_release, scores_of):
    none = UserTables(
        schema=dataset.schema, train=dataset.train, test=dataset.test.assign(heart=np.nan)
    )
    got = scores_of(METRIC, none, as_release(none.test))
    assert got["raw"].detail["heart"] == got["scaled"].detail["heart"] == 0.0


def test_components_without_columns_are_left_out(tables, one_column, as_release, scores_of):
    dataset = tables(one_column([1, 2]), one_column([1, 2], first=9))
    got = scores_of(METRIC, dataset, as_release(dataset.test, schema=dataset.schema))
    assert set(got) == {"raw", "scaled", "missing"}


def test_the_floor_is_the_score_of_real_users_that_are_not_copied(dataset, as_release, scores_of):
    release = as_release(dataset.train[dataset.train["user"] < 40], copied=range(40))
    sample = floor_sample(dataset, release, np.random.default_rng(5))
    assert sample["user"].nunique() == 40
    assert sample["user"].min() >= 40
    got = scores_of(METRIC, dataset, release, seed=5)
    of_sample = scores_of(METRIC, dataset, as_release(sample, copied=range(40)))
    for component, score in got.items():
        assert score.floor == pytest.approx(of_sample[component].value)


def test_a_floor_takes_as_many_users_as_remain(dataset, as_release):
    copied = range(90)
    release = as_release(dataset.train[dataset.train["user"] < 90], copied=copied)
    sample = floor_sample(dataset, release, np.random.default_rng(5))
    assert sample["user"].nunique() == 30


def test_a_release_of_all_train_users_has_no_floor(dataset, as_release, scores_of):
    got = scores_of(METRIC, dataset, as_release(dataset.train, copied=range(120)))
    assert all(score.floor is None for score in got.values())
    assert all(math.isfinite(score.value) for score in got.values())


def test_absurd_values_score_finite_numbers(dataset, as_release, scores_of):
    signs = np.where(np.arange(len(dataset.test)) % 2, 1.7e308, -1.7e308)
    got = scores_of(METRIC, dataset, as_release(dataset.test.assign(heart=signs, pressure=signs)))
    assert all(math.isfinite(score.value) for score in got.values())


def test_a_dataset_without_test_users_is_refused(dataset, as_release, scores_of):
    with pytest.raises(DataError, match="no test users"):
        scores_of(METRIC, dataset.for_mechanism(), as_release(dataset.test))
