"""Transitions against a plain loop."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest

from panelbench_metrics.samples import floor_sample
from panelbench_metrics.transition import TransitionError

METRIC = TransitionError()


def by_loop(train, real, other, name):
    """The error of one column, counted pair by pair; None where it is skipped."""
    edges = sorted(set(np.nanquantile(train[name], [0.0, 0.25, 0.5, 0.75, 1.0])))
    if len(edges) < 3:
        return None
    edges = [-math.inf, *edges[1:-1], math.inf]
    matrices = []
    for frame in (real, other):
        counts = np.zeros((len(edges) - 1, len(edges) - 1))
        for _, table in frame.groupby("user"):
            states = []
            for value in table[name]:
                if not math.isnan(value):
                    states += [s for s in range(len(counts)) if edges[s] <= value < edges[s + 1]]
            for before, after in pairwise(states):
                counts[before, after] += 1
        matrices.append([row / row.sum() if row.sum() > 0 else row for row in counts])
    return math.sqrt((np.subtract(*matrices) ** 2).sum())


def test_the_error_agrees_with_a_plain_loop(dataset, as_release, scores_of):
    release = as_release(dataset.train[dataset.train["user"] < 30], copied=range(30))
    rest = dataset.train[dataset.train["user"] >= 30]
    got = scores_of(METRIC, dataset, release)["error"]
    expected = {
        name: by_loop(rest, dataset.test, release.frame, name) for name in ("heart", "pressure")
    }
    assert got.detail == pytest.approx(expected, rel=1e-12)
    assert got.value == pytest.approx(np.mean(list(expected.values())), rel=1e-12)


def test_equal_quantiles_are_merged(tables, one_column, as_release, scores_of):
    train = one_column([0, 0, 0, 0, 1, 2], [0, 0, 3, 0, 5, 0])
    test = one_column([0, 1, 0, 4, 2, 2, 0], first=9)
    other = one_column([0, 0, 5, 5, 1, 0])
    got = scores_of(METRIC, tables(train, test), as_release(other, tables(train, test).schema))
    assert got["error"].value == pytest.approx(by_loop(train, test, other, "x"))


def test_a_value_on_an_edge_belongs_to_the_state_above(tables, one_column, as_release, scores_of):
    dataset = tables(one_column([0, 1, 2, 3, 4]), one_column([1, 1.5, 1], first=9))
    above, below = (as_release(one_column(s), dataset.schema) for s in ([1.5, 1.5], [0, 1, 0]))
    assert scores_of(METRIC, dataset, above)["error"].value == 0.0
    assert scores_of(METRIC, dataset, below)["error"].value > 0.0


def test_missing_values_are_dropped_before_pairing(tables, one_column, as_release, scores_of):
    full = one_column([1, 2, 3, 4, 1, 3], first=9)
    holes = one_column([1, math.nan, 2, 3, math.nan, math.nan, 4, 1, 3])
    dataset = tables(one_column([1, 2, 3, 4]), full)
    assert scores_of(METRIC, dataset, as_release(holes, dataset.schema))["error"].value == 0.0


def test_pairs_do_not_cross_tables(tables, one_column, as_release, scores_of):
    dataset = tables(one_column([1, 2, 3, 4]), one_column([1, 1], [4, 4], first=9))
    split = as_release(one_column([1, 1], [4, 4]), dataset.schema)
    joined = as_release(one_column([1, 1, 4, 4]), dataset.schema)
    assert scores_of(METRIC, dataset, split)["error"].value == 0.0
    assert scores_of(METRIC, dataset, joined)["error"].value > 0.0


def test_tables_of_one_row_have_the_zero_matrix(tables, one_column, as_release, scores_of):
    dataset = tables(one_column([1, 2, 3, 4]), one_column([1, 1, 1], [4, 4], first=9))
    release = as_release(one_column([1], [4]), dataset.schema)
    assert scores_of(METRIC, dataset, release)["error"].value == pytest.approx(math.sqrt(2))


def test_the_worst_error_is_the_end_of_the_scale(tables, one_column, as_release, scores_of):
    dataset = tables(one_column([1, 2, 3, 4]), one_column([1, 1], [2, 2], [3, 3], [4, 4], first=9))
    release = as_release(one_column([1, 2, 1], [3, 4, 3]), dataset.schema)
    worst = METRIC.components["error"].upper
    assert scores_of(METRIC, dataset, release)["error"].value == pytest.approx(worst)


def test_a_column_with_one_state_is_skipped(tables, one_column, as_release, scores_of):
    dataset = tables(one_column([5, 5, 5]), one_column([5, 6], first=9))
    assert not scores_of(METRIC, dataset, as_release(dataset.test, dataset.schema))


def test_a_column_that_train_never_shows_is_skipped(tables, one_column, as_release, scores_of):
    dataset = tables(one_column([math.nan, math.nan]), one_column([5, 6], first=9))
    assert not scores_of(METRIC, dataset, as_release(dataset.test, dataset.schema))


def test_the_floor_is_the_score_of_real_users(dataset, as_release, scores_of):
    release = as_release(dataset.train[dataset.train["user"] < 40], copied=range(40))
    sample = floor_sample(dataset, release, np.random.default_rng(5))
    of_sample = scores_of(METRIC, dataset, as_release(sample, copied=range(40)))
    assert scores_of(METRIC, dataset, release, seed=5)["error"].floor == of_sample["error"].value
