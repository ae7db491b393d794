"""Lengths against scipy."""

from __future__ import annotations

import pytest
from scipy.stats import wasserstein_distance

from panelbench_metrics.length import LengthW1


def test_lengths_are_compared_in_rows(dataset, as_release, scores_of):
    release = as_release(dataset.train[dataset.train["user"] < 30])
    got = scores_of(LengthW1(), dataset, release)["length"]
    expected = wasserstein_distance(
        dataset.test["user"].value_counts(), release.frame["user"].value_counts()
    )
    assert got.value == pytest.approx(expected)
    assert got.unit == "rows"


def test_one_row_more_in_each_table_scores_one(tables, one_column, as_release, scores_of):
    dataset = tables(one_column([1]), one_column([1, 2], [1, 2, 3], first=9))
    release = as_release(one_column([1, 2, 3], [1, 2, 3, 4]), dataset.schema)
    got = scores_of(LengthW1(), dataset, release)["length"]
    assert (got.value, got.floor) == (1.0, 1.5)
