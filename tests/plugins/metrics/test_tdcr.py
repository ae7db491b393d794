"""TDCR against tslearn's paths, numpy's histogram and scipy's divergence."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.spatial.distance import jensenshannon
from tslearn.metrics import dtw_path_from_metric

from panelbench import UserTables
from panelbench_metrics.tdcr import WORST, Tdcr, divergence


@pytest.fixture(scope="module")
def small(dataset):
    train, test = dataset.train, dataset.test
    return UserTables(
        schema=dataset.schema,
        train=train[train["user"] < 20],
        test=test[test["user"] < 1008],
    )


def filled(frame, column):
    """Lists of values, filled forward, then backward, then with 0, one a user."""
    result = []
    for _, table in frame.groupby("user"):
        values = list(table[column])
        for order in (range(1, len(values)), range(len(values) - 2, -1, -1)):
            for i in order:
                neighbor = values[i - 1] if order.step > 0 else values[i + 1]
                values[i] = neighbor if math.isnan(values[i]) else values[i]
        result.append([0.0 if math.isnan(value) else value for value in values])
    return result


def closest(frame, reference, scales):
    """Distance of each table to the closest of `reference`."""
    distances = []
    sides = [(filled(frame, c), filled(reference, c), scale) for c, scale in scales.items()]
    for i in range(frame["user"].nunique()):
        each = []
        for j in range(reference["user"].nunique()):
            total = 0.0
            for a, b, scale in sides:
                path, cost = dtw_path_from_metric(
                    np.array(a[i])[:, None], np.array(b[j])[:, None], metric="cityblock"
                )
                total += cost / len(path) / scale
            each.append(total)
        distances.append(min(each))
    return np.array(distances)


def by_histogram(a, b):
    pooled = np.concatenate((a, b))
    p, q = (np.histogram(x, bins=40, range=(pooled.min(), pooled.max()))[0] + 1e-12 for x in (a, b))
    return jensenshannon(p, q)


def test_both_components_agree_with_plain_loops(small, as_release, scores_of):
    release = as_release(
        small.train[small.train["user"] < 10].assign(pressure=130.0), copied=range(5)
    )
    rest = small.train[small.train["user"] >= 5]
    deviations = {name: np.nanstd(rest[name].to_numpy()) for name in ("heart", "pressure")}
    got = scores_of(Tdcr(), small, release)
    for component, scales in (("raw", {"heart": 1.0, "pressure": 1.0}), ("scaled", deviations)):
        fake, real = closest(release.frame, rest, scales), closest(small.test, rest, scales)
        assert got[component].value == pytest.approx(by_histogram(fake, real), rel=1e-9)
        detail = got[component].detail
        assert detail["mean synthetic distance"] == pytest.approx(fake.mean(), rel=1e-9)
        assert detail["mean test distance"] == pytest.approx(real.mean(), rel=1e-9)


def test_the_floor_compares_each_train_table_with_the_others(small, as_release, scores_of):
    few = as_release(small.test)  # 8 tables, and a floor of 8 of the 20 train tables
    many = as_release(small.train.assign(pressure=0.0))  # 20 tables: all of train is the floor
    assert scores_of(Tdcr(), small, few)["raw"].detail["floor tables"] == 8
    scales = {"heart": 1.0, "pressure": 1.0}
    train = small.train
    left_out = [
        closest(train[train["user"] == u], train[train["user"] != u], scales)[0] for u in range(20)
    ]
    expected = by_histogram(np.array(left_out), closest(small.test, train, scales))
    assert scores_of(Tdcr(), small, many)["raw"].floor == pytest.approx(expected, rel=1e-9)


def test_copied_users_are_no_reference(small, as_release, scores_of):
    copies = small.train[small.train["user"] < 8]
    honest = scores_of(Tdcr(), small, as_release(copies, copied=range(8)))["raw"].detail
    silent = scores_of(Tdcr(), small, as_release(copies))["raw"].detail
    assert (honest["reference tables"], silent["reference tables"]) == (12, 20)
    assert (honest["share of synthetic copies"], silent["share of synthetic copies"]) == (0.0, 1.0)


def test_sizes_are_capped_and_reported(dataset, as_release, scores_of):
    metric = Tdcr(max_tables=20, max_reference=50)
    detail = scores_of(metric, dataset, as_release(dataset.train))["raw"].detail
    sizes = ("synthetic tables", "test tables", "reference tables", "floor tables")
    assert [detail[name] for name in sizes] == [20, 20, 50, 20]


def test_the_test_users_are_perfect_under_a_cap_too(dataset, as_release, scores_of):
    got = scores_of(Tdcr(max_tables=20), dataset, as_release(dataset.test))
    assert got["raw"].value == got["scaled"].value == 0.0


def test_a_release_of_every_train_user_scores_the_worst(dataset, as_release, scores_of):
    got = scores_of(Tdcr(), dataset, as_release(dataset.train, copied=range(120)))
    assert {score.value for score in got.values()} == {WORST}
    assert {score.floor for score in got.values()} == {None}


def test_one_remaining_train_user_gives_no_floor(dataset, as_release, scores_of):
    copied = range(119)
    release = as_release(dataset.train[dataset.train["user"] < 119], copied=copied)
    assert scores_of(Tdcr(), dataset, release)["raw"].floor is None


def test_a_column_missing_in_the_release_counts_as_zero(dataset, as_release, scores_of):
    missing = scores_of(Tdcr(), dataset, as_release(dataset.test.assign(pressure=np.nan)))
    zero = scores_of(Tdcr(), dataset, as_release(dataset.test.assign(pressure=0.0)))
    assert missing["raw"].value == zero["raw"].value
    assert missing["raw"].detail == zero["raw"].detail


def test_absurd_values_score_finite_numbers(dataset, as_release, scores_of):
    signs = np.where(np.arange(len(dataset.test)) % 2, 1.7e308, -1.7e308)
    got = scores_of(Tdcr(), dataset, as_release(dataset.test.assign(heart=signs, pressure=signs)))
    for score in got.values():
        assert math.isfinite(score.value)
        assert all(math.isfinite(value) for value in score.detail.values())


def test_threads_do_not_change_the_score(dataset, as_release, scores_of):
    release = as_release(dataset.train)
    one, two = (scores_of(Tdcr(threads=t), dataset, release) for t in (1, 2))
    assert one == two


def test_the_divergence_agrees_with_numpy_and_scipy():
    rng = np.random.default_rng(0)
    for size in (1, 5, 400):
        a, b = rng.gamma(2.0, size=size), rng.gamma(3.0, size=2 * size)
        assert divergence(a, b) == pytest.approx(by_histogram(a, b), rel=1e-9, abs=1e-12)


def test_distances_that_are_all_equal_do_not_diverge():
    assert divergence(np.ones(3), np.ones(5)) == 0.0


def test_distances_without_overlap_reach_the_worst_value():
    assert divergence(np.zeros(3), np.ones(5)) == pytest.approx(WORST)


def test_distances_a_rounding_error_apart_are_binned():
    assert 0.0 < divergence(np.ones(3), np.ones(5) + 2**-52) <= WORST


@pytest.mark.parametrize("field", ["max_tables", "max_reference", "threads"])
def test_sizes_below_one_are_refused(field):
    with pytest.raises(ValueError, match=f"{field} must be at least 1, got 0"):
        Tdcr(**{field: 0})
